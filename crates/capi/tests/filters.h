/* System calls that the system refuses from a moment on. To be included after "check.h", on Linux. */
#ifndef FILTERS_H
#define FILTERS_H

#include <stddef.h>
#include <sys/prctl.h>
/* The compiler of another C library may have none of the system's own headers. */
#if defined(__has_include)
#if __has_include(<linux/filter.h>) && __has_include(<linux/seccomp.h>)
#include <linux/filter.h>
#include <linux/seccomp.h>
#define HAS_FILTERS
#endif
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif

/* From here on the calls of these two numbers fail with that error in this process. Whether that can be had. */
static inline int refuse_calls(unsigned one, unsigned other, unsigned error)
{
#ifdef HAS_FILTERS
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
    };
    struct sock_fprog program;
    code[1].k = one;
    code[2].k = other;
    code[4].k |= error;
    program.len = (unsigned short)(sizeof code / sizeof *code);
    program.filter = code;
    /* Valgrind makes additional calls. */
    return !is_slow() && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
#else
    (void)one, (void)other, (void)error;
    return 0;
#endif
}

#endif
