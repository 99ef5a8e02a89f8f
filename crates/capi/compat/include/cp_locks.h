/*
 * cp_locks.h: SRWLOCK, CRITICAL_SECTION, condition variables, one-time initialisation. Included by <windows.h>.
 */
#ifndef CP_LOCKS_H
#define CP_LOCKS_H

#include <sched.h>

#include <cp_ports.h>

/* ---- Locks ----------------------------------------------------------------------------------- */

/*
 * A single word, so that a thread does not touch the lock after releasing it: its memory may be freed by then.
 *
 * Lower half:
 *   16 bits  number of threads that share it, or CP_SRW_ALONE
 *   16 bits  number of threads waiting for exclusive use
 * Upper half, on which they sleep, so that it changes with each wake:
 *   15 bits  number of threads waiting to share it
 *    1 bit   the turn of those, which flips when they get it
 *    1 bit   a thread waiting for exclusive use was woken, and has not checked yet
 *   15 bits  how often one was woken
 *
 * Neither kind of thread starves the other. While a thread waits for exclusive use, no new thread may share the lock. A
 * thread that releases exclusive use hands the lock to all threads waiting to share it, before another one gets
 * exclusive use. So:
 *
 *   threads wait to share it  =>  a thread has exclusive use, or waits for it
 *   it is free, and threads wait for exclusive use  =>  one of them was woken, and will check
 *
 * A thread that arrives at the right moment may get exclusive use before one that has waited longer.
 */
typedef struct _RTL_SRWLOCK {
    uint64_t state;
} RTL_SRWLOCK, *PRTL_SRWLOCK, SRWLOCK, *PSRWLOCK;

#define RTL_SRWLOCK_INIT {0}
#define SRWLOCK_INIT RTL_SRWLOCK_INIT

#define CP_SRW_ALONE UINT64_C(0xFFFF)
#define CP_SRW_HOLDERS UINT64_C(0xFFFF)
#define CP_SRW_WRITER UINT64_C(0x10000)
#define CP_SRW_WRITERS UINT64_C(0xFFFF0000)
#define CP_SRW_READER (UINT64_C(1) << 32)
#define CP_SRW_READERS (UINT64_C(0x7FFF) << 32)
#define CP_SRW_TURN (UINT64_C(1) << 47)
#define CP_SRW_WOKEN (UINT64_C(1) << 48)
#define CP_SRW_WAKE (UINT64_C(1) << 49)

/* The kinds of threads that sleep on a lock. */
#define CP_SRW_SHARES 1U
#define CP_SRW_IS_ALONE 2U

CP_INLINE uint64_t cp_srw_state(PSRWLOCK lock) {
    return __atomic_load_n(&lock->state, __ATOMIC_RELAXED);
}

/* Replaces `*from` with `to`. On failure, returns 0 and stores the current state in `*from`. */
CP_INLINE int cp_srw_change(PSRWLOCK lock, uint64_t *from, uint64_t to) {
    return __atomic_compare_exchange_n(&lock->state, from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* The half on which threads sleep. */
CP_INLINE const uint32_t *cp_srw_half(PSRWLOCK lock) {
    return (const uint32_t *)(const void *)&lock->state + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
}

CP_INLINE void cp_srw_sleep(PSRWLOCK lock, uint64_t state, uint32_t sort) {
    cp_wait_word_as(cp_srw_half(lock), (uint32_t)(state >> 32), sort);
}

CP_INLINE int cp_srw_may_share(uint64_t state) {
    return (state & CP_SRW_HOLDERS) < CP_SRW_ALONE - 1 && (state & CP_SRW_WRITERS) == 0;
}

CP_INLINE VOID WINAPI InitializeSRWLock(PSRWLOCK SRWLock) {
    SRWLock->state = 0;
}

CP_INLINE BOOLEAN WINAPI TryAcquireSRWLockExclusive(PSRWLOCK SRWLock) {
    uint64_t state = cp_srw_state(SRWLock);
    while ((state & CP_SRW_HOLDERS) == 0)
        if (cp_srw_change(SRWLock, &state, state | CP_SRW_ALONE))
            return TRUE;
    return FALSE;
}

CP_INLINE BOOLEAN WINAPI TryAcquireSRWLockShared(PSRWLOCK SRWLock) {
    uint64_t state = cp_srw_state(SRWLock);
    while (cp_srw_may_share(state))
        if (cp_srw_change(SRWLock, &state, state + 1))
            return TRUE;
    return FALSE;
}

/* Counts the calling thread among the waiting ones, unless it gets the lock: then returns 0. If the count is at its
 * maximum, it does not sleep. */
CP_INLINE int cp_srw_wait_for_exclusive(PSRWLOCK lock, uint64_t *state) {
    for (*state = cp_srw_state(lock);;) {
        if ((*state & CP_SRW_HOLDERS) == 0) {
            if (cp_srw_change(lock, state, *state | CP_SRW_ALONE))
                return 0;
        } else if ((*state & CP_SRW_WRITERS) == CP_SRW_WRITERS) {
            sched_yield();
            *state = cp_srw_state(lock);
        } else if (cp_srw_change(lock, state, *state + CP_SRW_WRITER)) {
            *state += CP_SRW_WRITER;
            return 1;
        }
    }
}

CP_INLINE void cp_srw_acquire_exclusive(PSRWLOCK lock) {
    uint64_t state;
    if (!cp_srw_wait_for_exclusive(lock, &state))
        return;
    for (;;) {
        /* Perhaps another thread was woken: this one checks for both. */
        uint64_t seen = state & ~CP_SRW_WOKEN;
        if ((state & CP_SRW_HOLDERS) == 0) {
            if (cp_srw_change(lock, &state, (seen - CP_SRW_WRITER) | CP_SRW_ALONE))
                return;
        } else if (seen == state || cp_srw_change(lock, &state, seen)) {
            cp_srw_sleep(lock, seen, CP_SRW_IS_ALONE);
            state = cp_srw_state(lock);
        }
    }
}

CP_INLINE VOID WINAPI AcquireSRWLockExclusive(PSRWLOCK SRWLock) {
    if (!TryAcquireSRWLockExclusive(SRWLock))
        cp_srw_acquire_exclusive(SRWLock);
}

CP_INLINE void cp_srw_acquire_shared(PSRWLOCK lock) {
    uint64_t state = cp_srw_state(lock), turn;
    for (;;) {
        if (cp_srw_may_share(state)) {
            if (cp_srw_change(lock, &state, state + 1))
                return;
        } else if ((state & CP_SRW_READERS) == CP_SRW_READERS ||
                   ((state & CP_SRW_HOLDERS) != CP_SRW_ALONE && (state & CP_SRW_WRITERS) == 0)) {
            /* The count is at its maximum, so nobody would hand the lock over. */
            sched_yield();
            state = cp_srw_state(lock);
        } else if (cp_srw_change(lock, &state, state + CP_SRW_READER)) {
            break;
        }
    }
    turn = state & CP_SRW_TURN;
    state += CP_SRW_READER;
    /* It changes once, and not again before this thread has released the lock. */
    while ((state & CP_SRW_TURN) == turn) {
        cp_srw_sleep(lock, state, CP_SRW_SHARES);
        state = __atomic_load_n(&lock->state, __ATOMIC_SEQ_CST);
    }
}

CP_INLINE VOID WINAPI AcquireSRWLockShared(PSRWLOCK SRWLock) {
    if (!TryAcquireSRWLockShared(SRWLock))
        cp_srw_acquire_shared(SRWLock);
}

/* The state of a lock that is freed in `state`. Records that a thread waiting for exclusive use will be woken, unless
 * one has been woken already. */
CP_INLINE uint64_t cp_srw_freed(uint64_t state) {
    if ((state & CP_SRW_WRITERS) != 0 && (state & CP_SRW_WOKEN) == 0)
        return (state | CP_SRW_WOKEN) + CP_SRW_WAKE;
    return state;
}

CP_INLINE VOID WINAPI ReleaseSRWLockExclusive(PSRWLOCK SRWLock) {
    uint64_t state = cp_srw_state(SRWLock), left, readers;
    do {
        readers = (state & CP_SRW_READERS) >> 32;
        left = state & ~(CP_SRW_HOLDERS | CP_SRW_READERS);
        left = readers > 0 ? (left | readers) ^ CP_SRW_TURN : cp_srw_freed(left);
    } while (!cp_srw_change(SRWLock, &state, left));
    if (readers > 0)
        cp_wake_word_as(cp_srw_half(SRWLock), INT32_MAX, CP_SRW_SHARES);
    else if (left != (state & ~CP_SRW_HOLDERS))
        cp_wake_word_as(cp_srw_half(SRWLock), 1, CP_SRW_IS_ALONE);
}

CP_INLINE VOID WINAPI ReleaseSRWLockShared(PSRWLOCK SRWLock) {
    uint64_t state = cp_srw_state(SRWLock), left;
    do {
        left = state - 1;
        if ((left & CP_SRW_HOLDERS) == 0)
            left = cp_srw_freed(left);
    } while (!cp_srw_change(SRWLock, &state, left));
    if (left != state - 1)
        cp_wake_word_as(cp_srw_half(SRWLock), 1, CP_SRW_IS_ALONE);
}

/* The same thread may enter it again. As on Windows, it has six members that are no structs: some programs initialise it
 * with six zeros. A critical section of zeros is ready for use. */
typedef struct _RTL_CRITICAL_SECTION {
    uint64_t lock; /* the state of an SRWLOCK */
    uint32_t owner;
    uint32_t depth;
    void *unused_1;
    void *unused_2;
    void *unused_3;
} CRITICAL_SECTION, *PCRITICAL_SECTION, *LPCRITICAL_SECTION;

CP_INLINE PSRWLOCK cp_section_lock(LPCRITICAL_SECTION section) {
    return (PSRWLOCK)(void *)&section->lock;
}

CP_INLINE VOID WINAPI InitializeCriticalSection(LPCRITICAL_SECTION lpCriticalSection) {
    memset(lpCriticalSection, 0, sizeof *lpCriticalSection);
}

CP_INLINE BOOL WINAPI InitializeCriticalSectionAndSpinCount(LPCRITICAL_SECTION lpCriticalSection,
                                                            DWORD dwSpinCount) {
    (void)dwSpinCount;
    InitializeCriticalSection(lpCriticalSection);
    return TRUE;
}

CP_INLINE BOOL WINAPI InitializeCriticalSectionEx(LPCRITICAL_SECTION lpCriticalSection,
                                                  DWORD dwSpinCount, DWORD Flags) {
    (void)Flags;
    return InitializeCriticalSectionAndSpinCount(lpCriticalSection, dwSpinCount);
}

CP_INLINE VOID WINAPI DeleteCriticalSection(LPCRITICAL_SECTION lpCriticalSection) {
    (void)lpCriticalSection;
}

/* Whether the thread owns it. Only this thread can have written its own id there. */
CP_INLINE int cp_is_inside(LPCRITICAL_SECTION section, uint32_t thread) {
    return __atomic_load_n(&section->owner, __ATOMIC_RELAXED) == thread;
}

CP_INLINE void cp_note_entry(LPCRITICAL_SECTION section, uint32_t thread) {
    __atomic_store_n(&section->owner, thread, __ATOMIC_RELAXED);
    section->depth++;
}

CP_INLINE BOOL WINAPI TryEnterCriticalSection(LPCRITICAL_SECTION lpCriticalSection) {
    uint32_t me = cp_thread_id();
    if (!cp_is_inside(lpCriticalSection, me) && !TryAcquireSRWLockExclusive(cp_section_lock(lpCriticalSection)))
        return FALSE;
    cp_note_entry(lpCriticalSection, me);
    return TRUE;
}

CP_INLINE VOID WINAPI EnterCriticalSection(LPCRITICAL_SECTION lpCriticalSection) {
    uint32_t me = cp_thread_id();
    if (!cp_is_inside(lpCriticalSection, me))
        AcquireSRWLockExclusive(cp_section_lock(lpCriticalSection));
    cp_note_entry(lpCriticalSection, me);
}

CP_INLINE VOID WINAPI LeaveCriticalSection(LPCRITICAL_SECTION lpCriticalSection) {
    if (--lpCriticalSection->depth == 0) {
        __atomic_store_n(&lpCriticalSection->owner, 0U, __ATOMIC_RELAXED);
        ReleaseSRWLockExclusive(cp_section_lock(lpCriticalSection));
    }
}

/* Changes with each wake. */
typedef struct _RTL_CONDITION_VARIABLE {
    uint32_t wakes;
} RTL_CONDITION_VARIABLE, *PRTL_CONDITION_VARIABLE, CONDITION_VARIABLE, *PCONDITION_VARIABLE;

#define RTL_CONDITION_VARIABLE_INIT {0}
#define CONDITION_VARIABLE_INIT RTL_CONDITION_VARIABLE_INIT
#define CONDITION_VARIABLE_LOCKMODE_SHARED 0x1

CP_INLINE VOID WINAPI InitializeConditionVariable(PCONDITION_VARIABLE ConditionVariable) {
    ConditionVariable->wakes = 0;
}

CP_INLINE VOID WINAPI WakeConditionVariable(PCONDITION_VARIABLE ConditionVariable) {
    __atomic_fetch_add(&ConditionVariable->wakes, 1U, __ATOMIC_SEQ_CST);
    cp_wake_word(&ConditionVariable->wakes, 1);
}

CP_INLINE VOID WINAPI WakeAllConditionVariable(PCONDITION_VARIABLE ConditionVariable) {
    __atomic_fetch_add(&ConditionVariable->wakes, 1U, __ATOMIC_SEQ_CST);
    cp_wake_word(&ConditionVariable->wakes, INT32_MAX);
}

CP_INLINE BOOL cp_woken(uint32_t code) {
    if (code != CP_ERROR_TIMEOUT)
        return TRUE;
    SetLastError(ERROR_TIMEOUT);
    return FALSE;
}

CP_INLINE BOOL WINAPI SleepConditionVariableCS(PCONDITION_VARIABLE ConditionVariable,
                                               PCRITICAL_SECTION CriticalSection,
                                               DWORD dwMilliseconds) {
    uint32_t before = __atomic_load_n(&ConditionVariable->wakes, __ATOMIC_SEQ_CST);
    uint32_t code;
    LeaveCriticalSection(CriticalSection);
    code = cp_wait_word(&ConditionVariable->wakes, before, dwMilliseconds);
    EnterCriticalSection(CriticalSection);
    return cp_woken(code);
}

CP_INLINE BOOL WINAPI SleepConditionVariableSRW(PCONDITION_VARIABLE ConditionVariable,
                                                PSRWLOCK SRWLock, DWORD dwMilliseconds,
                                                ULONG Flags) {
    uint32_t before = __atomic_load_n(&ConditionVariable->wakes, __ATOMIC_SEQ_CST);
    uint32_t code;
    if (Flags & CONDITION_VARIABLE_LOCKMODE_SHARED)
        ReleaseSRWLockShared(SRWLock);
    else
        ReleaseSRWLockExclusive(SRWLock);
    code = cp_wait_word(&ConditionVariable->wakes, before, dwMilliseconds);
    if (Flags & CONDITION_VARIABLE_LOCKMODE_SHARED)
        AcquireSRWLockShared(SRWLock);
    else
        AcquireSRWLockExclusive(SRWLock);
    return cp_woken(code);
}

/* ---- One-time initialisation ------------------------------------------------------------------ */

typedef struct _RTL_RUN_ONCE {
    uint32_t state;
    PVOID made;
} RTL_RUN_ONCE, *PRTL_RUN_ONCE, INIT_ONCE, *PINIT_ONCE, *LPINIT_ONCE;

typedef BOOL(WINAPI *PINIT_ONCE_FN)(PINIT_ONCE InitOnce, PVOID Parameter, PVOID *Context);

#define RTL_RUN_ONCE_INIT {0, 0}
#define INIT_ONCE_STATIC_INIT RTL_RUN_ONCE_INIT
#define INIT_ONCE_CHECK_ONLY 0x1U
#define INIT_ONCE_ASYNC 0x2U
#define INIT_ONCE_INIT_FAILED 0x4U
#define INIT_ONCE_CTX_RESERVED_BITS 2

/* Not begun; one thread is initialising it; done; several threads are initialising it and the first to complete wins;
 * one of those is just completing it. */
#define CP_ONCE_IS_NEW 0U
#define CP_ONCE_RUNS 1U
#define CP_ONCE_IS_DONE 2U
#define CP_ONCE_RUNS_OFTEN 3U
#define CP_ONCE_ENDS 4U

CP_INLINE VOID WINAPI InitOnceInitialize(PINIT_ONCE InitOnce) {
    memset(InitOnce, 0, sizeof *InitOnce);
}

CP_INLINE BOOL cp_once_fails(DWORD code) {
    SetLastError(code);
    return FALSE;
}

CP_INLINE void cp_once_set(PINIT_ONCE once, uint32_t state) {
    __atomic_store_n(&once->state, state, __ATOMIC_SEQ_CST);
    cp_wake_word(&once->state, INT32_MAX);
}

/* A thread that arrives while another one is initialising it waits, unless both pass INIT_ONCE_ASYNC. `fPending` is
 * TRUE if the caller must initialise it and call InitOnceComplete. */
CP_INLINE BOOL WINAPI InitOnceBeginInitialize(LPINIT_ONCE lpInitOnce, DWORD dwFlags, PBOOL fPending,
                                              LPVOID *lpContext) {
    const uint32_t begun = dwFlags & INIT_ONCE_ASYNC ? CP_ONCE_RUNS_OFTEN : CP_ONCE_RUNS;
    if ((dwFlags & ~(INIT_ONCE_CHECK_ONLY | INIT_ONCE_ASYNC)) != 0 ||
        dwFlags == (INIT_ONCE_CHECK_ONLY | INIT_ONCE_ASYNC))
        return cp_once_fails(ERROR_INVALID_PARAMETER);
    for (;;) {
        uint32_t state = __atomic_load_n(&lpInitOnce->state, __ATOMIC_SEQ_CST);
        if (state == CP_ONCE_IS_DONE) {
            if (lpContext)
                *lpContext = lpInitOnce->made;
            *fPending = FALSE;
            return TRUE;
        }
        if (dwFlags & INIT_ONCE_CHECK_ONLY) {
            *fPending = TRUE;
            return cp_once_fails(ERROR_GEN_FAILURE);
        }
        if ((state == CP_ONCE_IS_NEW && __atomic_compare_exchange_n(&lpInitOnce->state, &state, begun, 0,
                                                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) ||
            (state == CP_ONCE_RUNS_OFTEN && begun == state)) {
            *fPending = TRUE;
            return TRUE;
        }
        if (begun != state && (state == CP_ONCE_RUNS || state == CP_ONCE_RUNS_OFTEN))
            return cp_once_fails(ERROR_INVALID_PARAMETER);
        if (state != CP_ONCE_IS_NEW && state != CP_ONCE_IS_DONE)
            cp_wait_word(&lpInitOnce->state, state, INFINITE);
    }
}

/* With INIT_ONCE_INIT_FAILED the next thread has to initialise it. With INIT_ONCE_ASYNC it fails if another thread has
 * already completed it. */
CP_INLINE BOOL WINAPI InitOnceComplete(LPINIT_ONCE lpInitOnce, DWORD dwFlags, LPVOID lpContext) {
    const int failed = (dwFlags & INIT_ONCE_INIT_FAILED) != 0;
    uint32_t state = dwFlags & INIT_ONCE_ASYNC ? CP_ONCE_RUNS_OFTEN : CP_ONCE_RUNS;
    if ((dwFlags & ~(INIT_ONCE_ASYNC | INIT_ONCE_INIT_FAILED)) != 0 ||
        dwFlags == (INIT_ONCE_ASYNC | INIT_ONCE_INIT_FAILED) || (failed && lpContext) ||
        ((uintptr_t)lpContext & ((1U << INIT_ONCE_CTX_RESERVED_BITS) - 1)) != 0)
        return cp_once_fails(ERROR_INVALID_PARAMETER);
    if (!__atomic_compare_exchange_n(&lpInitOnce->state, &state, CP_ONCE_ENDS, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return cp_once_fails(state == CP_ONCE_RUNS || state == CP_ONCE_RUNS_OFTEN ? ERROR_INVALID_PARAMETER
                                                                                : ERROR_GEN_FAILURE);
    if (!failed)
        lpInitOnce->made = lpContext;
    cp_once_set(lpInitOnce, failed ? CP_ONCE_IS_NEW : CP_ONCE_IS_DONE);
    return TRUE;
}

/* If `InitFn` fails, the next thread runs it. */
CP_INLINE BOOL WINAPI InitOnceExecuteOnce(PINIT_ONCE InitOnce, PINIT_ONCE_FN InitFn, PVOID Parameter,
                                          LPVOID *Context) {
    PVOID made = NULL;
    BOOL pending = FALSE;
    if (!InitOnceBeginInitialize(InitOnce, 0, &pending, Context))
        return FALSE;
    if (!pending)
        return TRUE;
    if (!InitFn(InitOnce, Parameter, &made)) {
        cp_once_set(InitOnce, CP_ONCE_IS_NEW);
        return FALSE;
    }
    InitOnce->made = made;
    cp_once_set(InitOnce, CP_ONCE_IS_DONE);
    if (Context)
        *Context = made;
    return TRUE;
}

#endif
