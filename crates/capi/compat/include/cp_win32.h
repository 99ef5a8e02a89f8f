/*
 * cp_win32.h: what nearly every source for the reference uses beside completion ports: threads and
 * waiting for them, events, locks, condition variables, clocks, atomic operations. Optional: nothing here
 * includes it unless CP_WITH_WIN32 is defined.
 *
 * Thin wrappers over pthread, the compiler's atomic operations and one wait of completion_port_internals.h
 * (cp_wait_word). Threads and events are handles, so that CloseHandle closes them. A wait may be for those
 * and for ports, which are signalled while packets are queued; for anything else it fails with
 * ERROR_INVALID_HANDLE. Compile with -pthread.
 *
 * What differs: a wait for a port looks every millisecond whether there is a packet; a thread cannot be made
 * suspended, terminated or given a priority; its stack is the system's usual one; there are no APCs, so
 * alertable waits are plain ones; a lock is not handed over in the order in which threads came.
 */
#ifndef CP_WIN32_H
#define CP_WIN32_H

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <windows.h>

#define WAIT_OBJECT_0 0
#define WAIT_ABANDONED 0x80
#define WAIT_ABANDONED_0 0x80
#define WAIT_IO_COMPLETION 0xC0
#define WAIT_FAILED 0xFFFFFFFFU
#define MAXIMUM_WAIT_OBJECTS 64
#define STILL_ACTIVE 259
#define CREATE_SUSPENDED 0x4
#define STACK_SIZE_PARAM_IS_A_RESERVATION 0x10000

/* ---- Objects that can be waited for ---------------------------------------------------------- */

/* A thread or an event. It is signalled while `signalled` is not 0. */
typedef struct cp_waitable {
    uint32_t shares;
    uint32_t signalled;
    uint32_t resets; /* a wait that it ends takes the signal away */
    uint32_t id;
    DWORD result;
    DWORD(WINAPI *routine)(LPVOID);
    LPVOID parameter;
} cp_waitable;

#define CP_KIND_THREAD 0x54485244U
#define CP_KIND_EVENT 0x45564E54U

CP_INLINE void cp_waitable_retain(void *object) {
    __atomic_fetch_add(&((cp_waitable *)object)->shares, 1U, __ATOMIC_RELAXED);
}

CP_INLINE void cp_waitable_release(void *object) {
    if (__atomic_fetch_sub(&((cp_waitable *)object)->shares, 1U, __ATOMIC_ACQ_REL) == 1)
        free(object);
}

CP_INLINE void cp_waitable_signal(cp_waitable *object) {
    __atomic_store_n(&object->signalled, 1U, __ATOMIC_SEQ_CST);
    cp_signal();
}

CP_INLINE cp_waitable *cp_waitable_find(HANDLE handle) {
    void *object = cp_find_object(handle, CP_KIND_THREAD);
    if (!object)
        object = cp_find_object(handle, CP_KIND_EVENT);
    return (cp_waitable *)object;
}

/* Whether it is signalled; ends a signal that one wait takes. */
CP_INLINE int cp_waitable_take(cp_waitable *object) {
    uint32_t one = 1;
    if (!object->resets)
        return __atomic_load_n(&object->signalled, __ATOMIC_SEQ_CST) != 0;
    return __atomic_compare_exchange_n(&object->signalled, &one, 0U, 0, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

CP_INLINE int cp_waitable_is_signalled(const cp_waitable *object) {
    return __atomic_load_n(&object->signalled, __ATOMIC_SEQ_CST) != 0;
}

/* Milliseconds that are left, rounded up, of a wait that began at `began`. */
CP_INLINE DWORD cp_time_left(uint64_t began, DWORD milliseconds) {
    uint64_t gone = cp_clock() - began;
    uint64_t all = (uint64_t)milliseconds * 1000000U;
    if (milliseconds == INFINITE)
        return INFINITE;
    return gone >= all ? 0 : (DWORD)((all - gone + 999999U) / 1000000U);
}

/* What a wait is for: an object, or a port if that is NULL. */
typedef struct cp_awaited {
    cp_waitable *object;
    HANDLE port;
} cp_awaited;

/* Whether it is signalled; a port that was closed meanwhile becomes NULL. */
CP_INLINE int cp_awaited_is_signalled(cp_awaited *it) {
    uint32_t code;
    if (it->object)
        return cp_waitable_is_signalled(it->object);
    code = cp_peek(it->port);
    if (code == CP_ERROR_INVALID_HANDLE)
        it->port = NULL;
    return code == CP_SUCCESS;
}

/* The same, and ends a signal that one wait takes. The packets of a port stay. */
CP_INLINE int cp_awaited_take(cp_awaited *it) {
    return it->object ? cp_waitable_take(it->object) : cp_awaited_is_signalled(it);
}

CP_INLINE DWORD cp_wait_for(cp_awaited *awaited, DWORD count, BOOL all, DWORD milliseconds) {
    const uint32_t *signals = cp_signals();
    uint64_t began = cp_clock();
    for (;;) {
        uint32_t before = __atomic_load_n(signals, __ATOMIC_SEQ_CST);
        DWORD left = cp_time_left(began, milliseconds);
        DWORD index = 0;
        if (all) {
            while (index < count && cp_awaited_is_signalled(&awaited[index]))
                index++;
            /* Between the look and the taking another thread may take one: then those that were
             * taken are given back. */
            if (index == count) {
                DWORD taken = 0;
                while (taken < count && cp_awaited_take(&awaited[taken]))
                    taken++;
                if (taken == count)
                    return WAIT_OBJECT_0;
                while (taken > 0)
                    if (awaited[--taken].object)
                        cp_waitable_signal(awaited[taken].object);
                sched_yield();
                continue;
            }
        } else {
            for (; index < count; index++)
                if (cp_awaited_take(&awaited[index]))
                    return WAIT_OBJECT_0 + index;
        }
        for (index = 0; index < count; index++) {
            if (awaited[index].object)
                continue;
            if (!awaited[index].port) {
                SetLastError(ERROR_INVALID_HANDLE);
                return WAIT_FAILED;
            }
            /* Only a look tells whether there are packets. */
            if (left > 1)
                left = 1;
        }
        if (left == 0)
            return WAIT_TIMEOUT;
        cp_wait_word(signals, before, left);
    }
}

CP_INLINE DWORD WINAPI WaitForMultipleObjects(DWORD nCount, const HANDLE *lpHandles, BOOL bWaitAll,
                                              DWORD dwMilliseconds) {
    cp_awaited awaited[MAXIMUM_WAIT_OBJECTS];
    DWORD found = 0;
    DWORD result = WAIT_FAILED;
    DWORD last = GetLastError();
    if (nCount == 0 || nCount > MAXIMUM_WAIT_OBJECTS || !lpHandles) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return WAIT_FAILED;
    }
    while (found < nCount) {
        awaited[found].object = cp_waitable_find(lpHandles[found]);
        awaited[found].port = lpHandles[found];
        if (!awaited[found].object && cp_peek(lpHandles[found]) == CP_ERROR_INVALID_HANDLE)
            break;
        found++;
    }
    if (found == nCount) {
        /* To look for what a handle is has failed now and then. */
        SetLastError(last);
        result = cp_wait_for(awaited, nCount, bWaitAll, dwMilliseconds);
    }
    while (found > 0)
        if (awaited[--found].object)
            cp_waitable_release(awaited[found].object);
    return result;
}

CP_INLINE DWORD WINAPI WaitForSingleObject(HANDLE hHandle, DWORD dwMilliseconds) {
    return WaitForMultipleObjects(1, &hHandle, FALSE, dwMilliseconds);
}

CP_INLINE DWORD WINAPI WaitForSingleObjectEx(HANDLE hHandle, DWORD dwMilliseconds, BOOL bAlertable) {
    (void)bAlertable;
    return WaitForSingleObject(hHandle, dwMilliseconds);
}

/* ---- Threads --------------------------------------------------------------------------------- */

typedef DWORD(WINAPI *LPTHREAD_START_ROUTINE)(LPVOID lpThreadParameter);
typedef LPTHREAD_START_ROUTINE PTHREAD_START_ROUTINE;

CP_INLINE void *cp_thread_main(void *argument) {
    cp_waitable *thread = (cp_waitable *)argument;
    __atomic_store_n(&thread->id, cp_thread_id(), __ATOMIC_RELEASE);
    cp_wake_word(&thread->id, 1);
    thread->result = thread->routine(thread->parameter);
    cp_waitable_signal(thread);
    cp_waitable_release(thread);
    return NULL;
}

/* `lpThreadAttributes` and `dwStackSize` change nothing; CREATE_SUSPENDED is refused. */
CP_INLINE HANDLE WINAPI CreateThread(LPSECURITY_ATTRIBUTES lpThreadAttributes, SIZE_T dwStackSize,
                                     LPTHREAD_START_ROUTINE lpStartAddress, LPVOID lpParameter,
                                     DWORD dwCreationFlags, LPDWORD lpThreadId) {
    cp_waitable *thread;
    pthread_attr_t attributes;
    pthread_t name;
    HANDLE handle;
    int failed;
    (void)lpThreadAttributes;
    (void)dwStackSize;
    if (!lpStartAddress || (dwCreationFlags & ~(DWORD)STACK_SIZE_PARAM_IS_A_RESERVATION) != 0) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return NULL;
    }
    thread = (cp_waitable *)calloc(1, sizeof *thread);
    if (!thread) {
        SetLastError(ERROR_NOT_ENOUGH_MEMORY);
        return NULL;
    }
    /* One share each for the handle, the thread and this call. */
    thread->shares = 3;
    thread->result = STILL_ACTIVE;
    thread->routine = lpStartAddress;
    thread->parameter = lpParameter;
    handle = cp_open_object(thread, CP_KIND_THREAD, cp_waitable_retain, cp_waitable_release);
    failed = !handle || pthread_attr_init(&attributes) != 0;
    if (!failed) {
        failed = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) != 0 ||
                 pthread_create(&name, &attributes, cp_thread_main, thread) != 0;
        pthread_attr_destroy(&attributes);
    }
    if (failed) {
        if (handle)
            CloseHandle(handle);
        cp_waitable_release(thread);
        cp_waitable_release(thread);
        SetLastError(ERROR_NO_SYSTEM_RESOURCES);
        return NULL;
    }
    if (lpThreadId) {
        while (__atomic_load_n(&thread->id, __ATOMIC_ACQUIRE) == 0)
            cp_wait_word(&thread->id, 0, INFINITE);
        *lpThreadId = thread->id;
    }
    cp_waitable_release(thread);
    return handle;
}

CP_INLINE BOOL WINAPI GetExitCodeThread(HANDLE hThread, LPDWORD lpExitCode) {
    cp_waitable *thread = (cp_waitable *)cp_find_object(hThread, CP_KIND_THREAD);
    if (!thread)
        return FALSE;
    *lpExitCode = cp_waitable_is_signalled(thread) ? thread->result : STILL_ACTIVE;
    cp_waitable_release(thread);
    return TRUE;
}

CP_INLINE DWORD WINAPI GetCurrentThreadId(void) {
    return cp_thread_id();
}

CP_INLINE DWORD WINAPI GetCurrentProcessId(void) {
    return (DWORD)getpid();
}

CP_INLINE BOOL WINAPI SwitchToThread(void) {
    return sched_yield() == 0;
}

CP_INLINE void WINAPI Sleep(DWORD dwMilliseconds) {
    uint32_t nothing = 0;
    uint64_t began = cp_clock();
    DWORD left = dwMilliseconds;
    if (left == 0)
        sched_yield();
    while (left > 0) {
        cp_wait_word(&nothing, 0, left);
        left = cp_time_left(began, dwMilliseconds);
    }
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Without a name. */
CP_INLINE HANDLE WINAPI CreateEventA(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
                                     BOOL bInitialState, LPCSTR lpName) {
    cp_waitable *event;
    (void)lpEventAttributes;
    if (lpName) {
        SetLastError(ERROR_NOT_SUPPORTED);
        return NULL;
    }
    event = (cp_waitable *)calloc(1, sizeof *event);
    if (!event) {
        SetLastError(ERROR_NOT_ENOUGH_MEMORY);
        return NULL;
    }
    event->shares = 1;
    event->resets = !bManualReset;
    event->signalled = bInitialState != 0;
    return cp_open_object(event, CP_KIND_EVENT, cp_waitable_retain, cp_waitable_release);
}

CP_INLINE HANDLE WINAPI CreateEventW(LPSECURITY_ATTRIBUTES lpEventAttributes, BOOL bManualReset,
                                     BOOL bInitialState, LPCWSTR lpName) {
    return CreateEventA(lpEventAttributes, bManualReset, bInitialState, lpName ? "" : NULL);
}

#if defined UNICODE || defined _UNICODE
#define CreateEvent CreateEventW
#else
#define CreateEvent CreateEventA
#endif

CP_INLINE BOOL WINAPI SetEvent(HANDLE hEvent) {
    cp_waitable *event = (cp_waitable *)cp_find_object(hEvent, CP_KIND_EVENT);
    if (!event)
        return FALSE;
    cp_waitable_signal(event);
    cp_waitable_release(event);
    return TRUE;
}

CP_INLINE BOOL WINAPI ResetEvent(HANDLE hEvent) {
    cp_waitable *event = (cp_waitable *)cp_find_object(hEvent, CP_KIND_EVENT);
    if (!event)
        return FALSE;
    __atomic_store_n(&event->signalled, 0U, __ATOMIC_SEQ_CST);
    cp_waitable_release(event);
    return TRUE;
}

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

/* ---- Clocks and the machine ------------------------------------------------------------------- */

CP_INLINE BOOL WINAPI QueryPerformanceFrequency(LARGE_INTEGER *lpFrequency) {
    lpFrequency->QuadPart = 1000000000;
    return TRUE;
}

CP_INLINE BOOL WINAPI QueryPerformanceCounter(LARGE_INTEGER *lpPerformanceCount) {
    lpPerformanceCount->QuadPart = (LONGLONG)cp_clock();
    return TRUE;
}

CP_INLINE ULONGLONG WINAPI GetTickCount64(void) {
    return cp_clock() / 1000000U;
}

CP_INLINE DWORD WINAPI GetTickCount(void) {
    return (DWORD)GetTickCount64();
}

typedef struct _SYSTEM_INFO {
    DWORD dwPageSize;
    DWORD dwNumberOfProcessors;
} SYSTEM_INFO, *LPSYSTEM_INFO;

/* Only what is said above. */
CP_INLINE VOID WINAPI GetSystemInfo(LPSYSTEM_INFO lpSystemInfo) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long page = sysconf(_SC_PAGESIZE);
    lpSystemInfo->dwPageSize = page > 0 ? (DWORD)page : 4096;
    lpSystemInfo->dwNumberOfProcessors = processors > 0 ? (DWORD)processors : 1;
}

/* ---- Atomic operations ------------------------------------------------------------------------ */

CP_INLINE LONG WINAPI InterlockedIncrement(volatile LONG *Addend) {
    return __atomic_add_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedDecrement(volatile LONG *Addend) {
    return __atomic_sub_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedExchangeAdd(volatile LONG *Addend, LONG Value) {
    return __atomic_fetch_add(Addend, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedAdd(volatile LONG *Addend, LONG Value) {
    return __atomic_add_fetch(Addend, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedExchange(volatile LONG *Target, LONG Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedAnd(volatile LONG *Destination, LONG Value) {
    return __atomic_fetch_and(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedOr(volatile LONG *Destination, LONG Value) {
    return __atomic_fetch_or(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedXor(volatile LONG *Destination, LONG Value) {
    return __atomic_fetch_xor(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG WINAPI InterlockedCompareExchange(volatile LONG *Destination, LONG ExChange, LONG Comperand) {
    __atomic_compare_exchange_n(Destination, &Comperand, ExChange, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return Comperand;
}

CP_INLINE LONG64 WINAPI InterlockedIncrement64(volatile LONG64 *Addend) {
    return __atomic_add_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedDecrement64(volatile LONG64 *Addend) {
    return __atomic_sub_fetch(Addend, 1, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedExchangeAdd64(volatile LONG64 *Addend, LONG64 Value) {
    return __atomic_fetch_add(Addend, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedAdd64(volatile LONG64 *Addend, LONG64 Value) {
    return __atomic_add_fetch(Addend, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedExchange64(volatile LONG64 *Target, LONG64 Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedAnd64(volatile LONG64 *Destination, LONG64 Value) {
    return __atomic_fetch_and(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedOr64(volatile LONG64 *Destination, LONG64 Value) {
    return __atomic_fetch_or(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedXor64(volatile LONG64 *Destination, LONG64 Value) {
    return __atomic_fetch_xor(Destination, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE LONG64 WINAPI InterlockedCompareExchange64(volatile LONG64 *Destination, LONG64 ExChange, LONG64 Comperand) {
    __atomic_compare_exchange_n(Destination, &Comperand, ExChange, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return Comperand;
}

CP_INLINE PVOID WINAPI InterlockedExchangePointer(PVOID volatile *Target, PVOID Value) {
    return __atomic_exchange_n(Target, Value, __ATOMIC_SEQ_CST);
}

CP_INLINE PVOID WINAPI InterlockedCompareExchangePointer(PVOID volatile *Destination, PVOID Exchange,
                                                         PVOID Comperand) {
    __atomic_compare_exchange_n(Destination, &Comperand, Exchange, 0, __ATOMIC_SEQ_CST,
                                __ATOMIC_SEQ_CST);
    return Comperand;
}

CP_INLINE VOID WINAPI MemoryBarrier(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif
