/* A program of the driver API alone, without cudart: PTX through cuModuleLoadData, launches, and a captured graph. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void *handle;
static void *libcuda;

static void *find(const char *name)
{
    void *function = dlsym(libcuda, name);
    if (!function) {
        fprintf(stderr, "libcuda has no %s\n", name);
        exit(2);
    }
    return function;
}

#define CALL(type, name, ...)                                                                   \
    do {                                                                                        \
        int result = ((int (*) type)find(name))(__VA_ARGS__);                                   \
        if (result) {                                                                           \
            fprintf(stderr, "%s failed: %d\n", name, result);                                   \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static const char PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry driver_only_kernel(.param .u64 p)\n{\n"
                          ".reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n"
                          "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
                          "mov.u32 %r1, %tid.x;\nst.global.u32 [%rd2], %r1;\nret;\n}\n";

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(void)
{
    handle context, module, function, stream, graph, executable;
    unsigned long long memory;
    int device;
    libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    CALL((unsigned), "cuInit", 0);
    CALL((int *, int), "cuDeviceGet", &device, 0);
    CALL((handle *, int), "cuDevicePrimaryCtxRetain", &context, device);
    CALL((handle), "cuCtxSetCurrent", context);
    CALL((handle *, const void *), "cuModuleLoadData", &module, PTX);
    CALL((handle *, handle, const char *), "cuModuleGetFunction", &function, module, "driver_only_kernel");
    CALL((unsigned long long *, size_t), "cuMemAlloc_v2", &memory, 4096);
    CALL((handle *, unsigned), "cuStreamCreate", &stream, 1);
    void *parameters[] = {&memory};
    int (*launch)(handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **) = find("cuLaunchKernel");
    CALL((handle, int), "cuStreamBeginCapture_v2", stream, 0);
    for (int i = 0; i < 50; i++)
        launch(function, 64, 1, 1, 128, 1, 1, 0, stream, parameters, 0);
    CALL((handle, handle *), "cuStreamEndCapture", stream, &graph);
    CALL((handle *, handle, unsigned long long), "cuGraphInstantiateWithFlags", &executable, graph, 0);
    unsigned long launches = 0;
    for (double end = now() + 4; now() < end; launches++) {
        launch(function, 64, 1, 1, 128, 1, 1, 0, stream, parameters, 0);
        CALL((handle, handle), "cuGraphLaunch", executable, stream);
        CALL((handle), "cuStreamSynchronize", stream);
    }
    puts(launches > 100 ? "launched" : "hardly launched");
    return 0;
}
