/* What every other profiler costs at least: a CUPTI subscriber with launch callbacks, no activity, no work in them.
 * An injection library for CUDA_INJECTION64_PATH; overhead.py builds it on the machine that it measures. */
#include <cupti.h>

static unsigned long launches;

static void CUPTIAPI on_launch(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    (void)user, (void)domain, (void)id, (void)data;
    launches++;
}

int InitializeInjection(void)
{
    static const CUpti_CallbackId ids[] = {
        CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    };
    CUpti_SubscriberHandle subscriber;
    if (cuptiSubscribe(&subscriber, on_launch, 0) != CUPTI_SUCCESS)
        return 0;
    for (unsigned i = 0; i < sizeof ids / sizeof *ids; i++)
        cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, ids[i]);
    return 1;
}
