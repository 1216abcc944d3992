// A library that is linked against libcuda, and looks its functions up by every special handle.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

int plugin_call(void) {
    return cuLaunchKernel((void *)1, 2, 3, 4, 5, 6, 7, 8, (void *)9, (void **)10, (void **)11);
}
void *plugin_linked(void) { return (void *)cuLaunchKernel; }
void *plugin_asked(void) {
    void *result = 0;
    cuGetProcAddress_v2("cuLaunchKernel", &result, 13000, 0, 0);
    return result;
}
// Volatile results keep these from being tail calls, which would lend dlsym another caller's address.
void *plugin_default(const char *name) { void *volatile found = dlsym(RTLD_DEFAULT, name); return found; }
void *plugin_next(const char *name) { void *volatile found = dlsym(RTLD_NEXT, name); return found; }
