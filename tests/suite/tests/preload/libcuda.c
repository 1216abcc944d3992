// A driver that is just large enough to be looked up: each function returns a number made of its name and its arguments.
// Built as libcuda.so.1, once with and once without endbr64 at its entries.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static volatile int initialized = 1;

#define LAUNCH(name, base)                                                                                     \
    EXPORT int name(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, \
                    void *stream, void **params, void **extra) {                                               \
        if (!initialized) return 3;                                                                            \
        return base + (int)(intptr_t)f + 2 * a + 3 * b + 4 * c + 5 * d + 6 * e + 7 * g + 8 * h +                \
               9 * (int)(intptr_t)stream + 10 * (int)(intptr_t)params + 11 * (int)(intptr_t)extra;              \
    }
LAUNCH(cuLaunchKernel, 100000)
LAUNCH(cuLaunchKernel_ptsz, 200000)

EXPORT int cuGraphLaunch(void *graph, void *stream) {
    if (!initialized) return 3;
    return 300000 + (int)(intptr_t)graph + 2 * (int)(intptr_t)stream;
}
EXPORT int cuGraphLaunch_ptsz(void *graph, void *stream) {
    if (!initialized) return 3;
    return 400000 + (int)(intptr_t)graph + 2 * (int)(intptr_t)stream;
}
// One function under two names.
EXPORT int cuGraphInstantiate(void *a, void *b, void *c, void *d, size_t e) {
    if (!initialized) return 3;
    return 500000 + (int)e;
}
EXPORT int cuGraphInstantiate_v2(void *, void *, void *, void *, size_t) __attribute__((alias("cuGraphInstantiate")));
// Too short to be patched.
__asm__(".globl cuGraphDestroy\n.type cuGraphDestroy,@function\ncuGraphDestroy: mov %edi,%eax\nret\n.size cuGraphDestroy,3\n.fill 16,1,0x90\n");
EXPORT int cuGraphDestroy(void *);

EXPORT int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
// What the profiler calls itself: nothing is current and nothing captures.
EXPORT int cuCtxGetCurrent(void **context) { *context = NULL; return 0; }
EXPORT int cuCtxSetCurrent(void *context) { return context ? 201 : 0; }
EXPORT int cuCtxSynchronize(void) { return 201; }
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) { *mode = 0; return 0; }
EXPORT int cuStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, void **graph, const void ***nodes, size_t *count) {
    *status = 0;
    return 0;
}
EXPORT int cuGraphGetNodes(void *graph, void **nodes, size_t *count) { *count = 0; return 0; }

EXPORT int cuGetProcAddress(const char *, void **, int, uint64_t);
EXPORT int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static void *find(const char *symbol, int version, uint64_t flags) {
    const int per_thread = flags & 2;
    if (!strcmp(symbol, "cuLaunchKernel")) return per_thread ? (void *)cuLaunchKernel_ptsz : (void *)cuLaunchKernel;
    if (!strcmp(symbol, "cuGraphLaunch")) return per_thread ? (void *)cuGraphLaunch_ptsz : (void *)cuGraphLaunch;
    if (!strcmp(symbol, "cuGraphInstantiate")) return cuGraphInstantiate;
    if (!strcmp(symbol, "cuGraphDestroy")) return cuGraphDestroy;
    if (!strcmp(symbol, "cuDriverGetVersion")) return cuDriverGetVersion;
    if (!strcmp(symbol, "cuGetProcAddress")) return version >= 12000 ? (void *)cuGetProcAddress_v2 : (void *)cuGetProcAddress;
    return NULL;
}
int cuGetProcAddress(const char *symbol, void **result, int version, uint64_t flags) {
    *result = find(symbol, version, flags);
    return *result ? 0 : 500;
}
int cuGetProcAddress_v2(const char *symbol, void **result, int version, uint64_t flags, int *why) {
    *result = find(symbol, version, flags);
    if (why) *why = *result ? 0 : 1;
    return *result ? 0 : 500;
}

EXPORT int cuInit(unsigned flags) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (initialize) initialize();
    return 0;
}
