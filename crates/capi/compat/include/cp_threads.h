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
#include <stdlib.h>
#include <unistd.h>

#include <cp_pool.h>
#include <cp_waits.h>

#define STILL_ACTIVE 259
#define CREATE_SUSPENDED 0x4
#define STACK_SIZE_PARAM_IS_A_RESERVATION 0x10000
#define TLS_OUT_OF_INDEXES 0xFFFFFFFFU

/* ---- Threads --------------------------------------------------------------------------------- */

/* The argument of a new thread. */
typedef struct cp_new_thread_call {
    void *thread;
    LPTHREAD_START_ROUTINE routine;
    LPVOID parameter;
} cp_new_thread_call;

CP_INLINE void *cp_thread_main(void *argument) {
    cp_new_thread_call call = *(cp_new_thread_call *)argument;
    free(argument);
    cp_begin_thread(call.thread);
    cp_end_thread(call.routine(call.parameter));
    return NULL;
}

/* Whether the thread was started. */
CP_INLINE int cp_start_thread(cp_new_thread_call *call) {
    pthread_attr_t attributes;
    pthread_t name;
    int failed;
    if (pthread_attr_init(&attributes) != 0)
        return 0;
    failed = pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) != 0 ||
             pthread_create(&name, &attributes, cp_thread_main, call) != 0;
    pthread_attr_destroy(&attributes);
    return !failed;
}

CP_INLINE DWORD WINAPI GetThreadId(HANDLE Thread) {
    return cp_thread_number(Thread);
}

/* `lpThreadAttributes` and `dwStackSize` change nothing. */
CP_INLINE HANDLE WINAPI CreateThread(LPSECURITY_ATTRIBUTES lpThreadAttributes, SIZE_T dwStackSize,
                                     LPTHREAD_START_ROUTINE lpStartAddress, LPVOID lpParameter,
                                     DWORD dwCreationFlags, LPDWORD lpThreadId) {
    const DWORD known = CREATE_SUSPENDED | STACK_SIZE_PARAM_IS_A_RESERVATION;
    cp_new_thread_call *call;
    void *thread = NULL;
    HANDLE handle;
    (void)lpThreadAttributes;
    (void)dwStackSize;
    if (!lpStartAddress || (dwCreationFlags & ~known) != 0) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return NULL;
    }
    call = (cp_new_thread_call *)malloc(sizeof *call);
    handle = call ? cp_new_thread((dwCreationFlags & CREATE_SUSPENDED) != 0, &thread) : NULL;
    if (handle) {
        call->thread = thread;
        call->routine = lpStartAddress;
        call->parameter = lpParameter;
        if (cp_start_thread(call)) {
            if (lpThreadId)
                *lpThreadId = GetThreadId(handle);
            return handle;
        }
        cp_discard_thread(thread);
        CloseHandle(handle);
    }
    free(call);
    SetLastError(ERROR_NO_SYSTEM_RESOURCES);
    return NULL;
}

/* How often it was suspended before: once if it was created so and not resumed yet. */
CP_INLINE DWORD WINAPI ResumeThread(HANDLE hThread) {
    return cp_resume_thread(hThread);
}

CP_INLINE BOOL WINAPI GetExitCodeThread(HANDLE hThread, LPDWORD lpExitCode) {
    return cp_thread_result(hThread, STILL_ACTIVE, lpExitCode);
}

/* Ends the calling thread. In C++ its objects are destroyed, which the reference does not do. */
__attribute__((__noreturn__)) CP_INLINE VOID WINAPI ExitThread(DWORD dwExitCode) {
    cp_end_thread(dwExitCode);
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

/* Ends the program by SIGABRT, without describing the exception. */
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
        if (dwMilliseconds != INFINITE) {
            uint64_t gone = cp_clock() - began, all = (uint64_t)dwMilliseconds * 1000000U;
            left = gone >= all ? 0 : (DWORD)((all - gone + 999999U) / 1000000U);
        }
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

/* Success sets the last error to 0, which distinguishes a value of 0 from a failure. */
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
