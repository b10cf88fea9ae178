"""A program that works on the GPU for some steps and then meets a fault. Progress goes to the file --progress, one line
a step with the time at which all its kernels had run, so that a test knows what could have been recorded."""
import argparse
import multiprocessing
import os
import signal
import sys
import time

KERNELS_PER_STEP = 10


def steps(count, progress=None, seconds=0.0, name="decode_step"):
    """`count` steps, or as many as fit into `seconds`."""
    import torch
    from torch.cuda import nvtx
    x = torch.ones(2**20, device="cuda")
    begin, done = time.time(), 0
    while done < count or time.time() - begin < seconds:
        with nvtx.range(name):
            for _ in range(KERNELS_PER_STEP):
                x.mul_(1.0)
            torch.cuda.synchronize()
        done += 1
        if progress:
            progress.write(f"{time.time():.6f} {done * KERNELS_PER_STEP}\n")
            progress.flush()
        time.sleep(0.002)
    return done


def resident_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def worker(rank):
    steps(50, name=f"decode_step worker {rank}")


def torch_profiler():
    from torch.profiler import ProfilerActivity, profile
    steps(50)  # it comes into a recording that is under way
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recording:
        steps(50)
    seen = sum(event.device_type.name == "CUDA" and "elementwise" in event.name for event in recording.events())
    print(f"torch.profiler saw {seen} kernels", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="none")
    parser.add_argument("--progress", default=os.devnull)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0.0)
    args = parser.parse_args()
    if args.fault == "no-gpu":
        import torch
        print(f"cuda available: {torch.cuda.is_available()}", flush=True)
        (torch.ones(512, 512) @ torch.ones(512, 512)).sum().item()
        return 6
    if args.fault == "spawn":
        context = multiprocessing.get_context("spawn")
        workers = [context.Process(target=worker, args=(rank,)) for rank in range(2)]
        for process in workers:
            process.start()
        for process in workers:
            process.join()
        print("workers ended with", *[process.exitcode for process in workers], flush=True)
        return 0
    if args.fault == "sigterm":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    if args.fault == "stdin":
        print(sys.stdin.readline().strip().upper(), flush=True)
    if args.fault == "torch-profiler":
        torch_profiler()
    with open(args.progress, "w") as progress:
        if args.fault == "long":
            steps(0, progress, args.seconds / 4)
            early = resident_kib()
            steps(0, progress, 3 * args.seconds / 4)
            print(f'RESULT {{"resident_kib_at_quarter": {early}, "resident_kib_at_end": {resident_kib()}}}', flush=True)
            return 0
        steps(args.steps, progress, args.seconds)
        if args.fault == "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif args.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif args.fault == "os-exit":
            os._exit(7)
        elif args.fault == "fork-exit":
            child = os.fork()
            if child == 0:
                os._exit(3)
            print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            steps(50, progress)
        elif args.fault == "fork-exec":
            child = os.fork()
            if child == 0:
                os.execv(sys.executable, [sys.executable, __file__, "--steps", "50"])
            print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
            steps(50, progress)
    return 42 if args.fault == "stdin" else 0


if __name__ == "__main__":
    sys.exit(main())
