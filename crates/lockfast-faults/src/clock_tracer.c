/* Runs a program with a wall clock that can be stepped, also one that a preloaded library does not
 * reach because it asks the kernel without the C library, as programs in Go do.
 *
 *     LOCKFAST_CLOCK_OFFSET=FILE clock_tracer PROGRAM ARGUMENTS…
 *
 * The file is that of clock_shim.c. This process becomes the program, so its pid is the program's;
 * a child of it traces it. The kernel's page of clocks (vDSO) is hidden from the program, a filter
 * stops it whenever it asks for the time of day, and the tracer answers in the kernel's place.
 * Monotonic clocks are left alone. The program dies with its tracer. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef __x86_64__
#error "the clock of a traced program can be stepped on x86-64 only"
#endif

static volatile const int64_t *ahead_behind_us;

static void fail(const char *what) {
    perror(what);
    exit(125);
}

static void open_offset(void) {
    const char *path = getenv("LOCKFAST_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, 16, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) fail("LOCKFAST_CLOCK_OFFSET");
    ahead_behind_us = page;
}

/* Stops whoever asks for the time of day. */
static void install_filter(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 8),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettimeofday, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_time, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_REALTIME, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_REALTIME_COARSE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        fail("seccomp");
}

static uint64_t peek(pid_t thread, uint64_t at) {
    errno = 0;
    long word = ptrace(PTRACE_PEEKDATA, thread, (void *)at, NULL);
    if (errno) fail("PTRACE_PEEKDATA");
    return (uint64_t)word;
}

/* The program was just loaded: what it is told about the vDSO, behind its arguments and its
 * environment on the stack, is made void. */
static void hide_vdso(pid_t thread) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, thread, NULL, &registers)) fail("PTRACE_GETREGS");
    uint64_t at = registers.rsp + 8 * (peek(thread, registers.rsp) + 2);
    while (peek(thread, at)) at += 8;
    for (at += 8; peek(thread, at) != AT_NULL; at += 16) {
        if (peek(thread, at) == AT_SYSINFO_EHDR
            && ptrace(PTRACE_POKEDATA, thread, (void *)at, (void *)(long)AT_IGNORE))
            fail("PTRACE_POKEDATA");
    }
}

static int write_answer(pid_t thread, uint64_t at, int64_t *answer, size_t count) {
    struct iovec from = {answer, count * sizeof *answer}, to = {(void *)at, from.iov_len};
    return !at || process_vm_writev(thread, &from, 1, &to, 1, 0) == (ssize_t)from.iov_len;
}

/* Answers for the kernel, and has the system call left out. */
static void tell_time(pid_t thread) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, thread, NULL, &registers)) return; /* it was just killed */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t us = ahead_behind_us[0] - ahead_behind_us[1];
    int64_t ns = now.tv_nsec + us % 1000000 * 1000;
    int64_t carry = ns < 0 ? -1 : ns / 1000000000;
    int64_t s = now.tv_sec + us / 1000000 + carry;
    ns -= carry * 1000000000;
    if (registers.orig_rax == SYS_time) {
        registers.rax = write_answer(thread, registers.rdi, &s, 1) ? (uint64_t)s : (uint64_t)-EFAULT;
    } else if (registers.orig_rax == SYS_gettimeofday) {
        int64_t answer[2] = {s, ns / 1000};
        registers.rax = write_answer(thread, registers.rdi, answer, 2) ? 0 : (uint64_t)-EFAULT;
    } else {
        int64_t answer[2] = {s, ns};
        registers.rax = write_answer(thread, registers.rsi, answer, 2) ? 0 : (uint64_t)-EFAULT;
    }
    registers.orig_rax = (uint64_t)-1;
    ptrace(PTRACE_SETREGS, thread, NULL, &registers);
}

static void trace(pid_t program) {
    for (;;) {
        int status;
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) exit(0); /* all of its threads have ended */
        if (!WIFSTOPPED(status)) {
            if (thread == program) exit(0);
            continue;
        }
        int event = status >> 16, number = WSTOPSIG(status);
        if (event == PTRACE_EVENT_STOP && number != SIGTRAP) {
            ptrace(PTRACE_LISTEN, thread, NULL, NULL); /* stopped until it is continued */
            continue;
        }
        if (event == PTRACE_EVENT_EXEC) hide_vdso(thread);
        if (event == PTRACE_EVENT_SECCOMP) tell_time(thread);
        long signal_to_pass_on = event ? 0 : number;
        ptrace(PTRACE_CONT, thread, NULL, (void *)signal_to_pass_on);
    }
}

int main(int count, char **words) {
    int ready[2];
    if (count < 2) return 64;
    open_offset();
    if (pipe2(ready, O_CLOEXEC)) fail("pipe2");
    pid_t program = getpid(), tracer = fork();
    if (tracer < 0) fail("fork");
    if (tracer == 0) {
        char go;
        long options = PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK
            | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP;
        /* It allows itself to be traced by this process first. */
        if (read(ready[0], &go, 1) != 1) fail("read");
        if (ptrace(PTRACE_SEIZE, program, NULL, (void *)options)) {
            kill(program, SIGKILL);
            fail("PTRACE_SEIZE");
        }
        kill(program, SIGCONT);
        trace(program);
    }
    prctl(PR_SET_PTRACER, tracer, 0, 0, 0);
    sigset_t waited;
    sigemptyset(&waited);
    sigaddset(&waited, SIGCONT);
    sigprocmask(SIG_BLOCK, &waited, NULL);
    if (write(ready[1], "g", 1) != 1) fail("write");
    int got;
    sigwait(&waited, &got);
    sigprocmask(SIG_UNBLOCK, &waited, NULL);
    install_filter();
    execvp(words[1], words + 1);
    fail(words[1]);
}
