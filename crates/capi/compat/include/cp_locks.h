/*
 * cp_locks.h: SRWLOCK, CRITICAL_SECTION, condition variables, one-time initialisation. Included by <windows.h>.
 *
 * A lock is not handed over in the order in which threads came.
 */
#ifndef CP_LOCKS_H
#define CP_LOCKS_H

#include <cp_ports.h>

/* ---- Locks ----------------------------------------------------------------------------------- */

/* How many threads share it, or CP_ALONE; and whether a thread waits. One word, so that a thread that gives the
 * lock up does not touch it afterwards: its memory may be freed by then. */
typedef struct _RTL_SRWLOCK {
    uint32_t state;
} SRWLOCK, *PSRWLOCK;

#define SRWLOCK_INIT {0}
#define CP_ALONE 0x7FFFFFFFU
#define CP_WAITED_FOR 0x80000000U

CP_INLINE VOID WINAPI InitializeSRWLock(PSRWLOCK SRWLock) {
    SRWLock->state = 0;
}

CP_INLINE BOOLEAN WINAPI TryAcquireSRWLockExclusive(PSRWLOCK SRWLock) {
    uint32_t state = __atomic_load_n(&SRWLock->state, __ATOMIC_RELAXED);
    while ((state & CP_ALONE) == 0)
        if (__atomic_compare_exchange_n(&SRWLock->state, &state, state | CP_ALONE, 0,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            return TRUE;
    return FALSE;
}

CP_INLINE BOOLEAN WINAPI TryAcquireSRWLockShared(PSRWLOCK SRWLock) {
    uint32_t state = __atomic_load_n(&SRWLock->state, __ATOMIC_RELAXED);
    while ((state & CP_ALONE) < CP_ALONE - 1)
        if (__atomic_compare_exchange_n(&SRWLock->state, &state, state + 1, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED))
            return TRUE;
    return FALSE;
}

/* Sleeps until the lock may be free. */
CP_INLINE void cp_srwlock_wait(PSRWLOCK lock) {
    uint32_t state = __atomic_load_n(&lock->state, __ATOMIC_SEQ_CST);
    while ((state & CP_ALONE) != 0) {
        uint32_t awaited = state | CP_WAITED_FOR;
        if (state == awaited ||
            __atomic_compare_exchange_n(&lock->state, &state, awaited, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            cp_wait_word(&lock->state, awaited, INFINITE);
            return;
        }
    }
}

CP_INLINE VOID WINAPI AcquireSRWLockExclusive(PSRWLOCK SRWLock) {
    while (!TryAcquireSRWLockExclusive(SRWLock))
        cp_srwlock_wait(SRWLock);
}

CP_INLINE VOID WINAPI AcquireSRWLockShared(PSRWLOCK SRWLock) {
    while (!TryAcquireSRWLockShared(SRWLock))
        cp_srwlock_wait(SRWLock);
}

CP_INLINE VOID WINAPI ReleaseSRWLockExclusive(PSRWLOCK SRWLock) {
    /* A thread that is woken and finds the lock taken says again that it waits. */
    if (__atomic_exchange_n(&SRWLock->state, 0U, __ATOMIC_SEQ_CST) & CP_WAITED_FOR)
        cp_wake_word(&SRWLock->state, INT32_MAX);
}

CP_INLINE VOID WINAPI ReleaseSRWLockShared(PSRWLOCK SRWLock) {
    uint32_t state = __atomic_load_n(&SRWLock->state, __ATOMIC_RELAXED);
    uint32_t left;
    do {
        left = (state & CP_ALONE) == 1 ? 0 : state - 1;
    } while (!__atomic_compare_exchange_n(&SRWLock->state, &state, left, 0, __ATOMIC_SEQ_CST,
                                          __ATOMIC_RELAXED));
    if (left == 0 && (state & CP_WAITED_FOR) != 0)
        cp_wake_word(&SRWLock->state, INT32_MAX);
}

/* The same thread may enter it again. */
typedef struct _RTL_CRITICAL_SECTION {
    SRWLOCK lock;
    uint32_t owner;
    uint32_t depth;
} CRITICAL_SECTION, *PCRITICAL_SECTION, *LPCRITICAL_SECTION;

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

CP_INLINE BOOL WINAPI TryEnterCriticalSection(LPCRITICAL_SECTION lpCriticalSection) {
    uint32_t me = cp_thread_id();
    /* Only this thread can have written its own number there. */
    if (__atomic_load_n(&lpCriticalSection->owner, __ATOMIC_RELAXED) != me) {
        if (!TryAcquireSRWLockExclusive(&lpCriticalSection->lock))
            return FALSE;
        __atomic_store_n(&lpCriticalSection->owner, me, __ATOMIC_RELAXED);
    }
    lpCriticalSection->depth++;
    return TRUE;
}

CP_INLINE VOID WINAPI EnterCriticalSection(LPCRITICAL_SECTION lpCriticalSection) {
    while (!TryEnterCriticalSection(lpCriticalSection))
        cp_srwlock_wait(&lpCriticalSection->lock);
}

CP_INLINE VOID WINAPI LeaveCriticalSection(LPCRITICAL_SECTION lpCriticalSection) {
    if (--lpCriticalSection->depth == 0) {
        __atomic_store_n(&lpCriticalSection->owner, 0U, __ATOMIC_RELAXED);
        ReleaseSRWLockExclusive(&lpCriticalSection->lock);
    }
}

/* Changes with each wake. */
typedef struct _RTL_CONDITION_VARIABLE {
    uint32_t wakes;
} CONDITION_VARIABLE, *PCONDITION_VARIABLE;

#define CONDITION_VARIABLE_INIT {0}
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
} INIT_ONCE, *PINIT_ONCE, *LPINIT_ONCE;

typedef BOOL(WINAPI *PINIT_ONCE_FN)(PINIT_ONCE InitOnce, PVOID Parameter, PVOID *Context);

#define INIT_ONCE_STATIC_INIT {0, 0}
#define CP_ONCE_RUNS 1U
#define CP_ONCE_IS_DONE 2U

CP_INLINE VOID WINAPI InitOnceInitialize(PINIT_ONCE InitOnce) {
    memset(InitOnce, 0, sizeof *InitOnce);
}

/* A thread that comes while another one runs `InitFn` waits for it. If that fails, the next thread runs it. */
CP_INLINE BOOL WINAPI InitOnceExecuteOnce(PINIT_ONCE InitOnce, PINIT_ONCE_FN InitFn, PVOID Parameter,
                                          LPVOID *Context) {
    for (;;) {
        uint32_t state = 0;
        PVOID made = NULL;
        BOOL done;
        if (__atomic_compare_exchange_n(&InitOnce->state, &state, CP_ONCE_RUNS, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            done = InitFn(InitOnce, Parameter, &made);
            if (done)
                InitOnce->made = made;
            __atomic_store_n(&InitOnce->state, done ? CP_ONCE_IS_DONE : 0U, __ATOMIC_SEQ_CST);
            cp_wake_word(&InitOnce->state, INT32_MAX);
            if (!done)
                return FALSE;
            state = CP_ONCE_IS_DONE;
        }
        if (state == CP_ONCE_IS_DONE) {
            if (Context)
                *Context = InitOnce->made;
            return TRUE;
        }
        cp_wait_word(&InitOnce->state, CP_ONCE_RUNS, INFINITE);
    }
}

#endif
