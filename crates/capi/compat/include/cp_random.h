/* cp_random.h: random bytes from the system. Included by <windows.h>. */
#ifndef CP_RANDOM_H
#define CP_RANDOM_H

#include <errno.h>
#include <sys/random.h>

#include <cp_base.h>

typedef PVOID BCRYPT_HANDLE;
typedef PVOID BCRYPT_ALG_HANDLE;

#define BCRYPT_RNG_USE_ENTROPY_IN_BUFFER 0x1
#define BCRYPT_USE_SYSTEM_PREFERRED_RNG 0x2

/* Fills the memory, and returns 0 or an errno. */
CP_INLINE int cp_random(void *to, size_t size) {
    unsigned char *at = (unsigned char *)to;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0 && errno != EINTR)
            return errno;
        if (got > 0) {
            at += got;
            size -= (size_t)got;
        }
    }
    return 0;
}

/* Only the system's generator: there are no algorithms to be opened. */
CP_INLINE NTSTATUS WINAPI BCryptGenRandom(BCRYPT_ALG_HANDLE hAlgorithm, PUCHAR pbBuffer, ULONG cbBuffer,
                                          ULONG dwFlags) {
    if (hAlgorithm || !(dwFlags & BCRYPT_USE_SYSTEM_PREFERRED_RNG))
        return (NTSTATUS)0xC0000008; /* STATUS_INVALID_HANDLE */
    if (!pbBuffer && cbBuffer > 0)
        return (NTSTATUS)0xC000000D; /* STATUS_INVALID_PARAMETER */
    return cp_random(pbBuffer, cbBuffer) == 0 ? 0 : (NTSTATUS)0xC0000001; /* STATUS_UNSUCCESSFUL */
}

#endif
