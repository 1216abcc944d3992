// Looks driver functions up in every way that engines use, calls what it finds and prints results that must not depend on
// whether a profiler is preloaded. With "where" as second argument it prints instead whose address it was given.
//
//   program late PLUGIN [where]     opens libcuda and the plugin while it runs
//   program deepbind PLUGIN [where] the same, with the plugin's own dependencies first
//   program linked - [where]        (built with -DLINKED) is linked against libcuda
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int get_address(const char *, void **, int, uint64_t);
typedef int get_address_v2(const char *, void **, int, uint64_t, int *);

static int show_where;

static void report(const char *what, void *function) {
    if (show_where) {
        Dl_info info = {0};
        const char *object = function && dladdr(function, &info) ? strrchr(info.dli_fname, '/') : "/null";
        const unsigned char *entry = function;
        if (entry && !memcmp(entry, "\xf3\x0f\x1e\xfa", 4)) entry += 4;
        printf("%s %s%s\n", what, object ? object + 1 : info.dli_fname, entry && *entry == 0xe9 ? " patched" : "");
    } else if (!function) {
        printf("%s null\n", what);
    } else {
        launch *call = (launch *)function;
        printf("%s %d\n", what, call((void *)1, 2, 3, 4, 5, 6, 7, 8, (void *)9, (void **)10, (void **)11));
    }
}
static void report_error(const char *what) {
    // Which object a failed look-up names is the one thing that differs.
    const char *message = dlerror();
    const char *known = message ? strstr(message, "undefined symbol") : NULL;
    message = known ? known : message;
    if (!show_where) printf("%s dlerror: %s\n", what, message ? message : "none");
}
static void *by_default(const char *name) { void *volatile found = dlsym(RTLD_DEFAULT, name); return found; }
static void *by_next(const char *name) { void *volatile found = dlsym(RTLD_NEXT, name); return found; }

static void ask_chain(void *handle) {
    void *found = NULL;
    int why = -1;
    get_address_v2 *ask = (get_address_v2 *)dlsym(handle, "cuGetProcAddress_v2");
    if (ask("cuGetProcAddress", &found, 13000, 0, &why)) return;
    ask = (get_address_v2 *)found;
    for (uint64_t flags = 0; flags < 3; flags++) {
        const char *names[] = {"cuLaunchKernel", "cuGraphLaunch", "cuGraphInstantiate"};
        for (int i = 0; i < 3; i++) {
            int status = ask(names[i], &found, 13000, flags, &why);
            if (!show_where) printf("status %d why %d\n", status, why);
            report(names[i], found);
        }
    }
    int status = ask("cuNoSuch", &found, 13000, 0, &why);
    if (!show_where) printf("cuNoSuch status %d why %d %p\n", status, why, found);
    if (ask("cuGetProcAddress", &found, 11030, 0, NULL)) return;
    get_address *ask_first = (get_address *)found;
    ask_first("cuLaunchKernel", &found, 11030, 0);
    report("through the first form", found);
}

static void before_the_driver(void) {
    const char *names[] = {"cuLaunchKernel", "cuGetProcAddress_v2", "cuNoSuch", "cudaMalloc", "cu", "c", ""};
    for (int i = 0; i < 7; i++) {
        report("default, before", by_default(names[i]));
        report_error(names[i]);
        report("next, before", by_next(names[i]));
        report("main, before", dlsym(dlopen(NULL, RTLD_NOW), names[i]));
    }
    if (by_default("puts") != (void *)puts) printf("puts moved\n");
}

static void with_handle(void *driver) {
    errno = 77;
    void *found = dlsym(driver, "cuLaunchKernel");
    if (errno != 77) printf("errno changed\n");
    report_error("found");
    report("handle", found);
    report("handle, per thread", dlsym(driver, "cuLaunchKernel_ptsz"));
    report("handle, graph", dlsym(driver, "cuGraphLaunch"));
    report("handle, alias", dlsym(driver, "cuGraphInstantiate_v2"));
    report("handle, short", dlsym(driver, "cuGraphDestroy"));
    report("handle, missing", dlsym(driver, "cuNoSuch"));
    report_error("missing");
    report("handle, missing hook", dlsym(driver, "cuLaunchKernelEx"));
    report_error("missing hook");
    report("default", by_default("cuLaunchKernel"));
    report("next", by_next("cuLaunchKernel"));
    ask_chain(driver);
}

static void with_plugin(const char *path, int flags) {
    void *plugin = dlopen(path, RTLD_NOW | flags);
    if (!plugin) { printf("%s\n", dlerror()); return; }
    int (*call)(void) = (int (*)(void))dlsym(plugin, "plugin_call");
    void *(*linked)(void) = (void *(*)(void))dlsym(plugin, "plugin_linked");
    void *(*asked)(void) = (void *(*)(void))dlsym(plugin, "plugin_asked");
    void *(*in_default)(const char *) = (void *(*)(const char *))dlsym(plugin, "plugin_default");
    void *(*in_next)(const char *) = (void *(*)(const char *))dlsym(plugin, "plugin_next");
    if (!show_where) printf("plugin calls %d\n", call());
    report("plugin linked", linked());
    report("plugin asked", asked());
    report("plugin default", in_default("cuLaunchKernel"));
    report("plugin next", in_next("cuLaunchKernel"));
    report("plugin's handle", dlsym(plugin, "cuLaunchKernel"));
}

#ifdef LINKED
extern launch cuLaunchKernel;
extern get_address_v2 cuGetProcAddress_v2;
extern int cuInit(unsigned);
int main(int count, char **arguments) {
    show_where = count > 3;
    void *found = NULL;
    report("linked", (void *)cuLaunchKernel);
    report("default", by_default("cuLaunchKernel"));
    report("next", by_next("cuLaunchKernel"));
    report("main", dlsym(dlopen(NULL, RTLD_NOW), "cuLaunchKernel"));
    cuGetProcAddress_v2("cuLaunchKernel", &found, 13000, 2, NULL);
    report("asked", found);
    cuInit(0);
    report("linked, after cuInit", (void *)cuLaunchKernel);
    report("default, after cuInit", by_default("cuLaunchKernel"));
    report("found earlier", found);
}
#else
int main(int count, char **arguments) {
    show_where = count > 3;
    before_the_driver();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) { printf("%s\n", dlerror()); return 1; }
    with_handle(driver);
    with_plugin(arguments[2], strcmp(arguments[1], "deepbind") ? RTLD_LOCAL : RTLD_LOCAL | RTLD_DEEPBIND);
    void *earlier = dlsym(driver, "cuLaunchKernel");
    ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
    report("found before cuInit", earlier);
    with_handle(driver);
    dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    report("default, global", by_default("cuLaunchKernel"));
    report("next, global", by_next("cuLaunchKernel"));
    report("main, global", dlsym(dlopen(NULL, RTLD_NOW), "cuLaunchKernel"));
    dlclose(driver);
}
#endif
