"""Forks after work was done: the child has no driver any more, as with the real one; the parent goes on."""
import os

import simcuda

KERNEL = "_Z11before_forkPf"


def main():
    """Work, fork, work."""
    simcuda.start()
    function = simcuda.functions([(KERNEL, 20000)])[KERNEL]
    stream = simcuda.stream()
    simcuda.launch(function, stream)
    simcuda.synchronize(stream)
    child = os.fork()
    if child == 0:
        try:
            simcuda.launch(function, stream)
        except simcuda.CudaError as error:
            os._exit(error.code)
        os._exit(0)
    status = os.WEXITSTATUS(os.waitpid(child, 0)[1])
    for _ in range(50):
        simcuda.launch(function, stream)
        simcuda.synchronize(stream)
    print("child=%d parent=ok" % status, flush=True)


if __name__ == "__main__":
    main()
