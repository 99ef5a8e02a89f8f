/* process.h: threads as the reference's C library begins them. */
#ifndef CP_PROCESS_H
#define CP_PROCESS_H

#include <errno.h>
#include <unistd.h>

#include <windows.h>

typedef unsigned(__stdcall *_beginthreadex_proc_type)(void *);
typedef void(__cdecl *_beginthread_proc_type)(void *);

/* CreateThread, which also sets errno. Returns 0 on failure. */
CP_INLINE uintptr_t _beginthreadex(void *security, unsigned stack_size, _beginthreadex_proc_type start_address,
                                   void *arglist, unsigned initflag, unsigned *thrdaddr) {
    HANDLE thread = CreateThread((LPSECURITY_ATTRIBUTES)security, stack_size, start_address, arglist, initflag,
                                 thrdaddr);
    if (!thread)
        errno = GetLastError() == ERROR_INVALID_PARAMETER ? EINVAL : EAGAIN;
    return (uintptr_t)thread;
}

/* The handle is closed by CloseHandle. */
CP_INLINE void _endthreadex(unsigned retval) {
    ExitThread(retval);
}

typedef struct cp_simple_thread {
    _beginthread_proc_type routine;
    void *argument;
    HANDLE handle;
} cp_simple_thread;

CP_INLINE DWORD WINAPI cp_simple_thread_main(LPVOID argument) {
    cp_simple_thread thread = *(cp_simple_thread *)argument;
    free(argument);
    /* At its end it would be too late if the routine calls ExitThread. The object lives as long as its thread. */
    CloseHandle(thread.handle);
    thread.routine(thread.argument);
    return 0;
}

/* -1 if it fails. The handle is closed when the thread begins: it cannot be waited for. */
CP_INLINE uintptr_t _beginthread(_beginthread_proc_type start_address, unsigned stack_size, void *arglist) {
    cp_simple_thread *thread = start_address ? (cp_simple_thread *)malloc(sizeof *thread) : NULL;
    HANDLE handle = NULL;
    if (thread) {
        thread->routine = start_address;
        thread->argument = arglist;
        handle = CreateThread(NULL, stack_size, cp_simple_thread_main, thread, CREATE_SUSPENDED, NULL);
    }
    if (!handle) {
        free(thread);
        errno = start_address ? EAGAIN : EINVAL;
        return (uintptr_t)-1;
    }
    thread->handle = handle;
    ResumeThread(handle);
    return (uintptr_t)handle;
}

CP_INLINE void _endthread(void) {
    ExitThread(0);
}

#ifndef _getpid
#define _getpid getpid
#endif

#endif
