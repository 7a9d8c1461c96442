"""C++ and CUDA text: what a kernel that computes on its arguments never says.

Comments are taken out, string literals are kept apart, macros are not expanded: so token pasting and
``#define`` of a listed name are findings themselves. Text can always hide more than it shows; what runs is
held by the sandbox, and the symbols of the built library are checked where it is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_passbench.candidate.audit.tables import words

_INCLUDES = words("""
    passbench.h cmath math.h cstdint stdint.h cstring string.h cstddef stddef.h cstdlib stdlib.h
    algorithm array vector limits limits.h climits cfloat float.h numeric utility tuple type_traits
    functional memory immintrin.h x86intrin.h arm_neon.h omp.h bit complex cassert assert.h
    initializer_list new optional span cuda_runtime.h cuda_fp16.h cuda_bf16.h cuda.h mma.h
    cooperative_groups.h cub/cub.cuh experimental/simd emmintrin.h xmmintrin.h pmmintrin.h
    tmmintrin.h smmintrin.h""")  # fmt: skip
_CALLS = {
    "starts a process": """system popen fork vfork clone clone3 execl execlp execle execv execvp execvpe execve
        posix_spawn posix_spawnp wordexp""",
    "loads code": "dlopen dlmopen dlsym dlvsym dladdr dl_iterate_phdr dlinfo",
    "reaches into processes or memory maps": """ptrace process_vm_readv process_vm_writev mmap mmap64 munmap
        mprotect mremap memfd_create shm_open shmat shmget pkey_mprotect madvise mincore personality sbrk brk
        userfaultfd""",
    "calls the kernel directly": "syscall __syscall ioctl io_uring_setup seccomp prctl arch_prctl",
    "opens files": """open openat open64 creat fopen fopen64 freopen fdopen opendir readlink stat lstat unlink
        remove rename tmpfile mkstemp mkdir rmdir ifstream ofstream fstream filesystem sendfile truncate""",
    "writes or reads descriptors": """write pwrite writev read pread readv dup dup2 printf fprintf dprintf puts
        fputs fwrite putchar cout cerr close fcntl poll select""",
    "uses the network": "socket connect bind listen accept sendto recvfrom send recv getaddrinfo socketpair",
    "reads or changes the environment": "getenv secure_getenv setenv putenv unsetenv clearenv environ __environ",
    "starts threads that it may not join": """pthread_create pthread_atfork thrd_create thread jthread async
        detach packaged_task""",
    "ends or signals a process": """exit _exit _Exit quick_exit abort terminate kill raise signal sigaction
        tgkill pthread_kill atexit on_exit at_quick_exit alarm setitimer longjmp setjmp sigprocmask
        pthread_cancel""",
    "looks at clocks": """clock clock_gettime gettimeofday time chrono rdtsc __rdtsc __rdtscp _rdtsc nanosleep
        usleep sleep clock_settime times getrusage timer_create clock64 globaltimer""",
    "changes scheduling or limits": """sched_setaffinity pthread_setaffinity_np setpriority nice setrlimit
        sched_setscheduler sched_yield mlock mlockall""",
    "belongs to PyTorch, Python or a vendor library": """at torch c10 aten PyObject Py_Initialize Py_AddPendingCall
        PyRun_SimpleString PyEval_GetFrame PyImport_ImportModule PyGILState_Ensure cblas_sgemm sgemm_ dgemm_
        cublasSgemm cudnnCreate cblas_dgemm mkl_malloc dnnl_sgemm""",
    "walks the stack": """backtrace __builtin_return_address __builtin_frame_address unw_step _Unwind_Backtrace
        __builtin_extract_return_addr""",
}  # fmt: skip
_REASON = {word: why for why, words in _CALLS.items() for word in words.split()}
# Short everyday words are meant only as a call or as a namespace.
_NAMESPACES = frozenset({"at", "torch", "c10", "aten", "chrono", "filesystem", "thread", "jthread", "async"})
_AS_CALL = words("""
    open read write close time clock stat remove rename select poll kill raise signal exit abort
    bind listen accept connect send recv nice times clone brk alarm system dup terminate sleep async
    detach""")
_TOKEN = re.compile(r"[A-Za-z_]\w*")
_STRIP = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)\"""", re.S
)
_ASM = re.compile(r"\b(asm|__asm__|__asm|\.incbin|\.section)\b")
_ATTRIBUTE = re.compile(r"\b(constructor|destructor|ifunc|init_priority|section|cleanup|weak|alias)\b")
_INCLUDE = re.compile(r"^\s*(?:#|\?\?=|%:)\s*(include\w*|import|embed)\s*(.*)$", re.M)
_PATHS = re.compile(r"/(proc|sys|dev|etc|home|root|tmp|usr|var)\b|\.so\b|LD_PRELOAD")
_FLAG = re.compile(r"-(O[0-3sg]|Ofast|std=[\w+]+|m[\w.=-]+|W[\w=-]*|D\w+(=[\w.+-]*)?|g|fopenmp(-simd)?|ffast-math|"
                   r"funroll-loops|fno-[\w-]+|ftree-[\w-]+|fstrict-[\w-]+|ffp-contract=\w+|ffinite-math-only|"
                   r"fassociative-math|freciprocal-math|fvect-[\w=-]+)")  # fmt: skip


def plain_flag(flag: str) -> bool:
    """Is ``flag`` one that only tunes the code that the compiler makes?"""
    return _FLAG.fullmatch(flag) is not None and not flag.startswith(("-Wl", "-Wa", "-Wp"))


def screen(text: str) -> Iterator[tuple[int, str, str]]:
    """``(line, rule, what)`` for everything in C++ or CUDA ``text`` that a kernel has no need of."""
    text = text.replace("\\\n", "")
    code, strings = _separate(text)
    yield from _includes(text, code)
    yield from _words(code)
    for pattern, what in ((_ASM, "inline assembly"), (re.compile(r"##|\?\?[=/'()!<>-]"), "token pasting")):
        for match in pattern.finditer(code):
            yield _line(code, match.start()), "native", what
    for match in re.finditer(r"__attribute__\s*\(\(|\[\[", code):
        if found := _ATTRIBUTE.match(code[match.end() :].lstrip().removeprefix("gnu::").strip("_")):
            yield _line(code, match.start()), "native", f"attribute {found[0]}"
    for at, string in strings:
        if _PATHS.search(string):
            yield _line(text, at), "native", f"path {string[:40]}"


def _separate(text: str) -> tuple[str, list[tuple[int, str]]]:
    """The text without comments and literals (same length, same lines), and its string literals."""
    strings: list[tuple[int, str]] = []

    def blank(match: re.Match[str]) -> str:
        if match[0].startswith(('"', "R")):
            strings.append((match.start(), match[0]))
        return re.sub(r"[^\n]", " ", match[0])

    return _STRIP.sub(blank, text), strings


def _includes(text: str, code: str) -> Iterator[tuple[int, str, str]]:
    for match in _INCLUDE.finditer(_without_comments(text)):
        name = re.fullmatch(r'[<"]([\w./]+)[>"]\s*', match[2].strip())
        if match[1] != "include" or name is None or name[1] not in _INCLUDES:
            yield _line(code, match.start()), "native-include", f"#{match[1]} {match[2].strip()[:60]}"


def _without_comments(text: str) -> str:
    return _STRIP.sub(lambda m: m[0] if m[0].startswith(('"', "R", "'")) else re.sub(r"[^\n]", " ", m[0]), text)


def _own_lambdas(code: str) -> set[str]:
    """Names that the text gives to lambdas of its own, and to nothing else."""
    names = set(re.findall(r"\bauto\s+(\w+)\s*=\s*\[", code))
    return {name for name in names if not re.search(rf"(?<!\breturn)(\w|\*|&)\s+\**{name}\s*\(", code)}


def _words(code: str) -> Iterator[tuple[int, str, str]]:
    own = _own_lambdas(code)
    for match in _TOKEN.finditer(code):
        word = match[0]
        why = _REASON.get(word)
        if why is None or (word in own and not code[: match.start()].rstrip().endswith("::")):
            continue
        before, after = code[: match.start()].rstrip()[-2:], code[match.end() :].lstrip()[:2]
        if word in _NAMESPACES and not (after == "::" or before == "::"):
            continue
        if word in _AS_CALL and word not in _NAMESPACES and not _is_mentioned(before, after):
            continue
        yield _line(code, match.start()), "native", f"{word}, which {why}"


def _is_mentioned(before: str, after: str) -> bool:
    """Is a short word a function here, not a member or a variable of that name?"""
    return before[-1:] == "&" or before == "::" or (after[:1] == "(" and before[-1:] not in (".", ">"))


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
