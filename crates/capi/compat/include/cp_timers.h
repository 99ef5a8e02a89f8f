/*
 * cp_timers.h: timers that can be waited for. A name is known in its process only. Included by <windows.h>.
 *
 * A timer calls no function (there are no APCs) and wakes no machine. Its time is kept to the millisecond.
 */
#ifndef CP_TIMERS_H
#define CP_TIMERS_H

#include <cp_absent.h>
#include <cp_events.h>

#define CREATE_WAITABLE_TIMER_MANUAL_RESET 0x1
#define CREATE_WAITABLE_TIMER_HIGH_RESOLUTION 0x2
#define TIMER_ALL_ACCESS 0x1F0003
#define TIMER_MODIFY_STATE 0x2

typedef VOID(CALLBACK *PTIMERAPCROUTINE)(LPVOID lpArgToCompletionRoutine, DWORD dwTimerLowValue,
                                         DWORD dwTimerHighValue);

CP_INLINE HANDLE WINAPI CreateWaitableTimerA(LPSECURITY_ATTRIBUTES lpTimerAttributes, BOOL bManualReset,
                                             LPCSTR lpTimerName) {
    (void)lpTimerAttributes;
    return cp_name_object(cp_new_timer(bManualReset != 0), lpTimerName, (int)sizeof *lpTimerName);
}

CP_INLINE HANDLE WINAPI CreateWaitableTimerW(LPSECURITY_ATTRIBUTES lpTimerAttributes, BOOL bManualReset,
                                             LPCWSTR lpTimerName) {
    (void)lpTimerAttributes;
    return cp_name_object(cp_new_timer(bManualReset != 0), lpTimerName, (int)sizeof *lpTimerName);
}

CP_INLINE HANDLE WINAPI CreateWaitableTimerExA(LPSECURITY_ATTRIBUTES lpTimerAttributes, LPCSTR lpTimerName,
                                               DWORD dwFlags, DWORD dwDesiredAccess) {
    (void)lpTimerAttributes;
    (void)dwDesiredAccess;
    if (!cp_has_flags(dwFlags, CREATE_WAITABLE_TIMER_MANUAL_RESET | CREATE_WAITABLE_TIMER_HIGH_RESOLUTION))
        return NULL;
    return cp_name_object(cp_new_timer((dwFlags & CREATE_WAITABLE_TIMER_MANUAL_RESET) != 0), lpTimerName, (int)sizeof *lpTimerName);
}

CP_INLINE HANDLE WINAPI CreateWaitableTimerExW(LPSECURITY_ATTRIBUTES lpTimerAttributes,
                                               LPCWSTR lpTimerName, DWORD dwFlags,
                                               DWORD dwDesiredAccess) {
    return cp_name_object(CreateWaitableTimerExA(lpTimerAttributes, NULL, dwFlags, dwDesiredAccess), lpTimerName,
                          (int)sizeof *lpTimerName);
}

/* Ends the signal, if it has one, and the time that was set before. */
CP_INLINE BOOL cp_set_timer_to(HANDLE timer, const LARGE_INTEGER *due, LONG period) {
    if (!due || period < 0) {
        SetLastError(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    return cp_set_timer(timer, due->QuadPart, period);
}

#ifdef __cplusplus
/* As SetWaitableTimer below; a routine that is not NULL is refused by the compiler. */
CP_INLINE BOOL WINAPI SetWaitableTimer(HANDLE hTimer, const LARGE_INTEGER *lpDueTime, LONG lPeriod,
                                       struct cp_nothing *pfnCompletionRoutine,
                                       LPVOID lpArgToCompletionRoutine, BOOL fResume) {
    (void)pfnCompletionRoutine;
    (void)lpArgToCompletionRoutine;
    (void)fResume;
    return cp_set_timer_to(hTimer, lpDueTime, lPeriod);
}
template <class Routine>
CP_ABSENT("a timer calls no function: wait for it")
BOOL SetWaitableTimer(HANDLE, const LARGE_INTEGER *, LONG, Routine *, LPVOID, BOOL);
#else
CP_INLINE BOOL WINAPI SetWaitableTimer(HANDLE hTimer, const LARGE_INTEGER *lpDueTime, LONG lPeriod,
                                       PTIMERAPCROUTINE pfnCompletionRoutine,
                                       LPVOID lpArgToCompletionRoutine, BOOL fResume) {
    (void)lpArgToCompletionRoutine;
    (void)fResume;
    if (pfnCompletionRoutine) {
        SetLastError(ERROR_NOT_SUPPORTED);
        return FALSE;
    }
    return cp_set_timer_to(hTimer, lpDueTime, lPeriod);
}
CP_ABSENT("a timer calls no function: wait for it")
extern PTIMERAPCROUTINE cp_timer_with_routine(PTIMERAPCROUTINE);
/* A function's name is refused, with `&` or without; a variable may be NULL. */
#define CP_UNLESS_ROUTINE(argument, refuse)                                                    \
    CP_UNLESS(__builtin_types_compatible_p(__typeof__(argument), VOID(LPVOID, DWORD, DWORD)) || \
                  __builtin_strncmp(#argument, "&", 1) == 0,                                   \
              argument, refuse)
#define SetWaitableTimer(hTimer, lpDueTime, lPeriod, pfnCompletionRoutine, lpArg, fResume)     \
    SetWaitableTimer(hTimer, lpDueTime, lPeriod,                                               \
                     CP_UNLESS_ROUTINE(pfnCompletionRoutine, cp_timer_with_routine), lpArg, fResume)
#endif

/* If the time has already come, the timer stays signalled. */
CP_INLINE BOOL WINAPI CancelWaitableTimer(HANDLE hTimer) {
    return cp_cancel_timer(hTimer);
}

#if defined UNICODE || defined _UNICODE
#define CreateWaitableTimer CreateWaitableTimerW
#define CreateWaitableTimerEx CreateWaitableTimerExW
#else
#define CreateWaitableTimer CreateWaitableTimerA
#define CreateWaitableTimerEx CreateWaitableTimerExA
#endif

#endif
