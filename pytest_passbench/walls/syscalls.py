"""Numbers of system calls per machine, and the names of the calls in the filters of ``seccomp``."""

from __future__ import annotations

from dataclasses import dataclass

#: Calls that send a signal, with the position of the signal among their arguments.
SIGNALS = (("kill", 1), ("tkill", 1), ("tgkill", 2), ("rt_sigqueueinfo", 1), ("rt_tgsigqueueinfo", 2))
#: Denied to all processes that run anything of a candidate.
_DENIED = (
    # other processes' memory and state
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_open", "pidfd_getfd", "pidfd_send_signal",
    # signals from the kernel to a stopped process; new process groups and sessions, whose orphans get SIGCONT
    "timer_create", "mq_notify", "setpgid", "setsid",
    # interfaces to large parts of the kernel
    "io_uring_setup", "io_uring_enter", "io_uring_register", "bpf", "perf_event_open", "userfaultfd",
    "add_key", "request_key", "keyctl",
    # memory, queues and semaphores that outlive the processes that made them
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
    # memory that is held without being mapped, so that no process seems to have it
    "memfd_create", "memfd_secret",
    # instances of which each user has few
    "inotify_init1", "fanotify_init",
    # other processes' priorities and places in memory
    "setpriority", "ioprio_set", "migrate_pages", "move_pages",
    # other file systems and namespaces
    "mount", "umount2", "pivot_root", "chroot", "unshare", "setns",
    "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    # a personality in which readable memory is executable
    "personality",
)  # fmt: skip
#: Calls whose first argument is a process. A process with candidate code may only name itself, as 0.
OF_ITSELF = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
#: Allowed to a measured process, the most frequent first. Nothing here lets the kernel fill memory from a descriptor
#: or from other memory. Such a call goes on for a while after SIGSTOP, so it would do work that is not timed.
_ALLOWED = (
    # the open channel to the judge, and printing
    "recvfrom", "sendto", "write", "sendmsg", "close",
    # memory (arguments of mmap and mprotect are checked)
    "futex", "brk", "munmap", "madvise",
    # time, and the process itself
    "clock_gettime", "clock_getres", "gettimeofday", "nanosleep", "clock_nanosleep", "restart_syscall",
    "sched_yield", "sched_getaffinity", "getcpu", "getpid", "gettid", "getrusage", "getrandom", "sysinfo",
    # signal handlers, of Python and of libraries
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack",
    # a thread's beginning and end
    "rseq", "set_robust_list", "set_tid_address", "exit", "exit_group",
)  # fmt: skip
#: Denied to a measured process that uses a device.
_PROCESSES = (
    "execve", "execveat", "sched_setaffinity", "setpriority", "sched_setscheduler", "sched_setparam",
    "sched_setattr", "ioprio_set",
)  # fmt: skip
_X86_64 = {
    "read": 0, "write": 1, "close": 3, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
    "rt_sigprocmask": 14, "rt_sigreturn": 15, "ioctl": 16, "sched_yield": 24, "mremap": 25, "madvise": 28,
    "shmget": 29, "shmat": 30, "shmctl": 31, "nanosleep": 35, "getpid": 39, "socket": 41, "sendto": 44,
    "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "exit": 60,
    "kill": 62, "semget": 64, "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71,
    "fcntl": 72, "gettimeofday": 96, "getrusage": 98, "sysinfo": 99, "ptrace": 101, "setpgid": 109, "setsid": 112,
    "rt_sigqueueinfo": 129, "sigaltstack": 131, "personality": 135, "setpriority": 141, "sched_setparam": 142,
    "sched_setscheduler": 144, "pivot_root": 155, "prctl": 157, "chroot": 161, "mount": 165, "umount2": 166,
    "gettid": 186, "tkill": 200, "time": 201, "futex": 202, "sched_setaffinity": 203, "sched_getaffinity": 204,
    "set_tid_address": 218, "restart_syscall": 219, "semtimedop": 220, "timer_create": 222, "clock_gettime": 228,
    "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "tgkill": 234, "mq_open": 240,
    "mq_unlink": 241, "mq_notify": 244, "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251,
    "inotify_init": 253, "migrate_pages": 256, "unshare": 272, "set_robust_list": 273, "move_pages": 279,
    "inotify_init1": 294, "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "fanotify_init": 300,
    "prlimit64": 302, "setns": 308, "getcpu": 309, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "sched_setattr": 314, "seccomp": 317, "getrandom": 318, "memfd_create": 319, "bpf": 321, "execveat": 322,
    "userfaultfd": 323, "rseq": 334,
}  # fmt: skip
_AARCH64 = {
    "fcntl": 25, "inotify_init1": 26, "ioctl": 29, "ioprio_set": 30, "umount2": 39, "mount": 40, "pivot_root": 41,
    "chroot": 51, "close": 57, "read": 63, "write": 64, "personality": 92, "exit": 93, "exit_group": 94,
    "set_tid_address": 96, "unshare": 97, "futex": 98, "set_robust_list": 99, "nanosleep": 101,
    "timer_create": 107, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "ptrace": 117,
    "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "sched_getaffinity": 123,
    "sched_yield": 124, "restart_syscall": 128, "kill": 129, "tkill": 130, "tgkill": 131, "sigaltstack": 132,
    "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigqueueinfo": 138, "rt_sigreturn": 139, "setpriority": 140,
    "setpgid": 154, "setsid": 157, "getrusage": 165, "prctl": 167, "getcpu": 168, "gettimeofday": 169,
    "getpid": 172, "gettid": 178, "sysinfo": 179, "mq_open": 180, "mq_unlink": 181, "mq_notify": 184,
    "msgget": 186, "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191, "semtimedop": 192,
    "semop": 193, "shmget": 194, "shmctl": 195, "shmat": 196, "socket": 198, "sendto": 206, "recvfrom": 207,
    "sendmsg": 211, "recvmsg": 212, "brk": 214, "munmap": 215, "mremap": 216, "add_key": 217, "request_key": 218,
    "keyctl": 219, "clone": 220, "execve": 221, "mmap": 222, "mprotect": 226, "madvise": 233,
    "migrate_pages": 238, "move_pages": 239, "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "prlimit64": 261,
    "fanotify_init": 262, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
    "sched_setattr": 274, "seccomp": 277, "getrandom": 278, "memfd_create": 279, "bpf": 280, "execveat": 281,
    "userfaultfd": 282, "rseq": 293,
}  # fmt: skip
#: New calls have the same numbers on all machines.
_COMMON = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "mount_setattr": 442, "memfd_secret": 447,
}  # fmt: skip


@dataclass(frozen=True)
class SyscallTable:
    """A processor architecture: the kernel's number for it, the numbers of calls by name, and lists of names."""

    arch: int
    calls: dict[str, int]
    denied: tuple[str, ...] = _DENIED
    allowed: tuple[str, ...] = _ALLOWED
    processes: tuple[str, ...] = _PROCESSES


SYSCALL_TABLES = {
    # Only x86-64 has the old calls fork, vfork, time and inotify_init beside their successors.
    "x86_64": SyscallTable(
        0xC000003E, {**_X86_64, **_COMMON}, denied=(*_DENIED, "inotify_init"), allowed=(*_ALLOWED, "time"),
        processes=(*_PROCESSES, "fork", "vfork"),
    ),
    "aarch64": SyscallTable(0xC00000B7, {**_AARCH64, **_COMMON}),
}
