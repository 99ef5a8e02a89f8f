/* cp_clocks.h: counters, ticks and times of the day. Included by <windows.h>. */
#ifndef CP_CLOCKS_H
#define CP_CLOCKS_H

#include <time.h>

#include <cp_base.h>
#include <cp_errors.h>

/* ---- Time that passes -------------------------------------------------------------------------- */

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

typedef UINT MMRESULT;
#define TIMERR_NOERROR 0
#define TIMERR_NOCANDO 97

CP_INLINE DWORD WINAPI timeGetTime(void) {
    return (DWORD)GetTickCount64();
}

/* The clock is as fine in any case. */
CP_INLINE MMRESULT WINAPI timeBeginPeriod(UINT uPeriod) {
    return uPeriod ? TIMERR_NOERROR : TIMERR_NOCANDO;
}

CP_INLINE MMRESULT WINAPI timeEndPeriod(UINT uPeriod) {
    return uPeriod ? TIMERR_NOERROR : TIMERR_NOCANDO;
}

/* ---- Times of the day -------------------------------------------------------------------------- */

/* A number of 100 ns intervals since 1601, in two halves. */
typedef struct _FILETIME {
    DWORD dwLowDateTime;
    DWORD dwHighDateTime;
} FILETIME, *PFILETIME, *LPFILETIME;

typedef struct _SYSTEMTIME {
    WORD wYear;
    WORD wMonth;
    WORD wDayOfWeek;
    WORD wDay;
    WORD wHour;
    WORD wMinute;
    WORD wSecond;
    WORD wMilliseconds;
} SYSTEMTIME, *PSYSTEMTIME, *LPSYSTEMTIME;

/* The time of the day: C11 has a call for it, and before that the system. */
CP_INLINE struct timespec cp_now(void) {
    struct timespec now = {0, 0};
#ifdef TIME_UTC
    timespec_get(&now, TIME_UTC);
#else
    clock_gettime(CLOCK_REALTIME, &now);
#endif
    return now;
}

#define CP_TICKS_A_SECOND 10000000
#define CP_SECONDS_FROM_1601_TO_1970 11644473600

CP_INLINE VOID WINAPI GetSystemTimePreciseAsFileTime(LPFILETIME lpSystemTimeAsFileTime) {
    struct timespec now = cp_now();
    uint64_t ticks;
    ticks = (uint64_t)(now.tv_sec + CP_SECONDS_FROM_1601_TO_1970) * CP_TICKS_A_SECOND +
            (uint64_t)now.tv_nsec / 100;
    lpSystemTimeAsFileTime->dwLowDateTime = (DWORD)ticks;
    lpSystemTimeAsFileTime->dwHighDateTime = (DWORD)(ticks >> 32);
}

CP_INLINE VOID WINAPI GetSystemTimeAsFileTime(LPFILETIME lpSystemTimeAsFileTime) {
    GetSystemTimePreciseAsFileTime(lpSystemTimeAsFileTime);
}

/* The system has it always; it declares it in C only if it is asked for. */
#ifndef __cplusplus
extern struct tm *localtime_r(const time_t *__restrict, struct tm *__restrict);
extern struct tm *gmtime_r(const time_t *__restrict, struct tm *__restrict);
#endif

CP_INLINE void cp_system_time_of(LPSYSTEMTIME to, const struct tm *from, long nanoseconds) {
    to->wYear = (WORD)(from->tm_year + 1900);
    to->wMonth = (WORD)(from->tm_mon + 1);
    to->wDayOfWeek = (WORD)from->tm_wday;
    to->wDay = (WORD)from->tm_mday;
    to->wHour = (WORD)from->tm_hour;
    to->wMinute = (WORD)from->tm_min;
    to->wSecond = (WORD)from->tm_sec;
    to->wMilliseconds = (WORD)(nanoseconds / 1000000);
}

CP_INLINE VOID WINAPI GetSystemTime(LPSYSTEMTIME lpSystemTime) {
    struct timespec now = cp_now();
    struct tm parts;
    memset(&parts, 0, sizeof parts);
    gmtime_r(&now.tv_sec, &parts);
    cp_system_time_of(lpSystemTime, &parts, now.tv_nsec);
}

CP_INLINE VOID WINAPI GetLocalTime(LPSYSTEMTIME lpSystemTime) {
    struct timespec now = cp_now();
    struct tm parts;
    memset(&parts, 0, sizeof parts);
    localtime_r(&now.tv_sec, &parts);
    cp_system_time_of(lpSystemTime, &parts, now.tv_nsec);
}

CP_INLINE BOOL WINAPI FileTimeToSystemTime(const FILETIME *lpFileTime, LPSYSTEMTIME lpSystemTime) {
    uint64_t ticks = (uint64_t)lpFileTime->dwHighDateTime << 32 | lpFileTime->dwLowDateTime;
    time_t seconds = (time_t)(ticks / CP_TICKS_A_SECOND) - CP_SECONDS_FROM_1601_TO_1970;
    struct tm parts;
    memset(&parts, 0, sizeof parts);
    if (ticks >> 63 || !gmtime_r(&seconds, &parts) || parts.tm_year + 1900 > 30827) {
        cp_set_last_error(ERROR_INVALID_PARAMETER);
        return FALSE;
    }
    cp_system_time_of(lpSystemTime, &parts, (long)(ticks % CP_TICKS_A_SECOND * 100));
    return TRUE;
}

#endif
