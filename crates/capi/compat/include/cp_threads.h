/*
 * cp_threads.h: threads, and memory of each thread. Included by <windows.h>.
 *
 * What differs: a thread cannot be suspended once it runs, terminated or given a priority, and its stack is the
 * system's usual one.
 */
#ifndef CP_THREADS_H
#define CP_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <cp_waits.h>

#define STILL_ACTIVE 259
#define CREATE_SUSPENDED 0x4
#define STACK_SIZE_PARAM_IS_A_RESERVATION 0x10000
#define TLS_OUT_OF_INDEXES 0xFFFFFFFFU

typedef DWORD(WINAPI *LPTHREAD_START_ROUTINE)(LPVOID lpThreadParameter);
typedef LPTHREAD_START_ROUTINE PTHREAD_START_ROUTINE;

/* ---- Threads --------------------------------------------------------------------------------- */

typedef struct cp_thread {
    cp_waitable base;
    uint32_t id;       /* 0 until it runs */
    uint32_t may_go;   /* not suspended, or resumed */
    DWORD result;
    LPTHREAD_START_ROUTINE routine;
    LPVOID parameter;
} cp_thread;

CP_INLINE void cp_thread_end(cp_thread *thread, DWORD result) {
    cp_set_own_thread(NULL);
    thread->result = result;
    cp_waitable_signal(&thread->base);
    cp_waitable_release(thread);
}

CP_INLINE void *cp_thread_main(void *argument) {
    cp_thread *thread = (cp_thread *)argument;
    cp_set_own_thread(thread);
    __atomic_store_n(&thread->id, cp_thread_id(), __ATOMIC_RELEASE);
    cp_wake_word(&thread->id, 1);
    while (__atomic_load_n(&thread->may_go, __ATOMIC_ACQUIRE) == 0)
        cp_wait_word(&thread->may_go, 0, INFINITE);
    cp_thread_end(thread, thread->routine(thread->parameter));
    return NULL;
}

/* `lpThreadAttributes` and `dwStackSize` change nothing. */
CP_INLINE HANDLE WINAPI CreateThread(LPSECURITY_ATTRIBUTES lpThreadAttributes, SIZE_T dwStackSize,
                                     LPTHREAD_START_ROUTINE lpStartAddress, LPVOID lpParameter,
                                     DWORD dwCreationFlags, LPDWORD lpThreadId) {
    const DWORD known = CREATE_SUSPENDED | STACK_SIZE_PARAM_IS_A_RESERVATION;
    cp_thread *thread;
    pthread_attr_t attributes;
    pthread_t name;
    HANDLE handle;
    int failed;
    (void)lpThreadAttributes;
    (void)dwStackSize;
    if (!lpStartAddress || (dwCreationFlags & ~known) != 0) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return NULL;
    }
    /* One share each for the handle, the thread and this call. */
    thread = (cp_thread *)cp_waitable_new(sizeof *thread, CP_IS_THREAD, 3);
    if (!thread)
        return NULL;
    thread->result = STILL_ACTIVE;
    thread->may_go = (dwCreationFlags & CREATE_SUSPENDED) == 0;
    thread->routine = lpStartAddress;
    thread->parameter = lpParameter;
    handle = cp_waitable_open(thread);
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

/* How often it was suspended before: once if it was created so and not resumed yet. */
CP_INLINE DWORD WINAPI ResumeThread(HANDLE hThread) {
    cp_thread *thread = (cp_thread *)cp_waitable_find(hThread, CP_IS_THREAD);
    DWORD before;
    if (!thread)
        return (DWORD)-1;
    before = __atomic_exchange_n(&thread->may_go, 1U, __ATOMIC_SEQ_CST) == 0;
    cp_wake_word(&thread->may_go, 1);
    cp_waitable_release(thread);
    return before;
}

CP_INLINE DWORD WINAPI GetThreadId(HANDLE Thread) {
    cp_thread *thread = (cp_thread *)cp_waitable_find(Thread, CP_IS_THREAD);
    DWORD id;
    if (!thread)
        return 0;
    while ((id = __atomic_load_n(&thread->id, __ATOMIC_ACQUIRE)) == 0)
        cp_wait_word(&thread->id, 0, INFINITE);
    cp_waitable_release(thread);
    return id;
}

CP_INLINE BOOL WINAPI GetExitCodeThread(HANDLE hThread, LPDWORD lpExitCode) {
    cp_thread *thread = (cp_thread *)cp_waitable_find(hThread, CP_IS_THREAD);
    if (!thread)
        return FALSE;
    *lpExitCode = cp_waitable_is_signalled(&thread->base) ? thread->result : STILL_ACTIVE;
    cp_waitable_release(thread);
    return TRUE;
}

/* Ends the calling thread. In C++ its objects are destroyed, which the reference does not do. */
__attribute__((__noreturn__)) CP_INLINE VOID WINAPI ExitThread(DWORD dwExitCode) {
    cp_thread *thread = (cp_thread *)cp_own_thread();
    if (thread)
        cp_thread_end(thread, dwExitCode);
    pthread_exit(NULL);
}

CP_INLINE DWORD WINAPI GetCurrentThreadId(void) {
    return cp_thread_id();
}

CP_INLINE DWORD WINAPI GetCurrentProcessId(void) {
    return (DWORD)getpid();
}

__attribute__((__noreturn__)) CP_INLINE VOID WINAPI ExitProcess(UINT uExitCode) {
    exit((int)uExitCode);
}

/* The program ends by SIGABRT; what is said of the exception is not. */
__attribute__((__noreturn__)) CP_INLINE VOID WINAPI RaiseFailFastException(LPVOID pExceptionRecord,
                                                                           LPVOID pContextRecord, DWORD dwFlags) {
    (void)pExceptionRecord;
    (void)pContextRecord;
    (void)dwFlags;
    abort();
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

/* Returns 0: no APC ends it. */
CP_INLINE DWORD WINAPI SleepEx(DWORD dwMilliseconds, BOOL bAlertable) {
    (void)bAlertable;
    Sleep(dwMilliseconds);
    return 0;
}

/* ---- Memory of each thread --------------------------------------------------------------------- */

CP_INLINE DWORD WINAPI TlsAlloc(void) {
    pthread_key_t key;
    if (pthread_key_create(&key, NULL) == 0)
        return (DWORD)key;
    SetLastError(ERROR_NO_SYSTEM_RESOURCES);
    return TLS_OUT_OF_INDEXES;
}

CP_INLINE BOOL WINAPI TlsFree(DWORD dwTlsIndex) {
    if (pthread_key_delete((pthread_key_t)dwTlsIndex) == 0)
        return TRUE;
    SetLastError(ERROR_INVALID_PARAMETER);
    return FALSE;
}

/* A success sets the last error to 0, so that a value of 0 can be told from a failure. */
CP_INLINE LPVOID WINAPI TlsGetValue(DWORD dwTlsIndex) {
    SetLastError(ERROR_SUCCESS);
    return pthread_getspecific((pthread_key_t)dwTlsIndex);
}

CP_INLINE BOOL WINAPI TlsSetValue(DWORD dwTlsIndex, LPVOID lpTlsValue) {
    if (pthread_setspecific((pthread_key_t)dwTlsIndex, lpTlsValue) == 0)
        return TRUE;
    SetLastError(ERROR_INVALID_PARAMETER);
    return FALSE;
}

#endif
