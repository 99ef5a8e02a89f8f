/* Waitable timers, semaphores, and functions that are called when an object is signalled. */
#include <winsock2.h>
#include <windows.h>

#include "check.h"

#define MILLISECOND 10000LL /* in 100 ns */

static LARGE_INTEGER ticks(LONGLONG count)
{
    LARGE_INTEGER due;
    due.QuadPart = count;
    return due;
}

static void set(HANDLE timer, LONGLONG due, LONG period)
{
    LARGE_INTEGER at = ticks(due);
    CHECK_IS(SetWaitableTimer(timer, &at, period, NULL, NULL, FALSE), TRUE);
}

static ULONGLONG milliseconds(void)
{
    return GetTickCount64();
}

static void a_timer_is_signalled_when_its_time_has_come(void)
{
    HANDLE stays = CreateWaitableTimer(NULL, TRUE, NULL), once = CreateWaitableTimer(NULL, FALSE, NULL);
    LARGE_INTEGER due;
    ULONGLONG began;
    CHECK(stays != NULL && once != NULL);
    CHECK_IS(WaitForSingleObject(stays, A_WHILE), WAIT_TIMEOUT); /* not set */
    set(stays, -600000 * MILLISECOND, 0);
    CHECK_IS(WaitForSingleObject(stays, 0), WAIT_TIMEOUT);
    began = milliseconds();
    set(stays, -50 * MILLISECOND, 0);
    CHECK_IS(WaitForSingleObject(stays, INFINITE), WAIT_OBJECT_0);
    CHECK(milliseconds() - began >= 49);
    CHECK_IS(WaitForSingleObject(stays, INFINITE), WAIT_OBJECT_0); /* stays signalled */
    set(stays, -600000 * MILLISECOND, 0); /* and no more, once it is set again */
    CHECK_IS(WaitForSingleObject(stays, A_WHILE), WAIT_TIMEOUT);
    set(stays, -MILLISECOND, 0);
    CHECK_IS(WaitForSingleObject(stays, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(CancelWaitableTimer(stays), TRUE); /* which leaves the signal */
    CHECK_IS(WaitForSingleObject(stays, 0), WAIT_OBJECT_0);
    do { /* in time, which a busy machine may not be */
        began = milliseconds();
        set(stays, -30 * MILLISECOND, 0);
        CHECK_IS(CancelWaitableTimer(stays), TRUE);
    } while (milliseconds() - began >= 25);
    CHECK_IS(WaitForSingleObject(stays, 60), WAIT_TIMEOUT);

    set(once, -MILLISECOND, 0);
    CHECK_IS(WaitForSingleObject(once, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(once, A_WHILE), WAIT_TIMEOUT); /* one wait takes it */
    due = ticks(-1);
    UNLESS_WINE("a timer takes a negative period")
        CHECK_FALSE(SetWaitableTimer(once, &due, -1, NULL, NULL, FALSE), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(SetEvent(once), ERROR_INVALID_HANDLE);
    CHECK_IS(CloseHandle(once), TRUE);
    CHECK_FALSE(CancelWaitableTimer(once), ERROR_INVALID_HANDLE);
    CHECK_IS(CloseHandle(stays), TRUE);
    once = CreateWaitableTimerA(NULL, FALSE, "a timer");
    CHECK(once != NULL && GetLastError() == 0);
    stays = CreateWaitableTimerW(NULL, TRUE, L"a timer");
    CHECK(stays != NULL && GetLastError() == ERROR_ALREADY_EXISTS);
    due = ticks(-1);
    CHECK_IS(SetWaitableTimer(once, &due, 0, NULL, NULL, FALSE), TRUE);
    CHECK_IS(WaitForSingleObject(stays, INFINITE), WAIT_OBJECT_0);
    CHECK(CloseHandle(once) && CloseHandle(stays));
}

#if HAS_SOCKET_CALLS && !defined __cplusplus
static VOID CALLBACK is_not_called(LPVOID argument, DWORD low, DWORD high)
{
    (void)argument;
    (void)low;
    (void)high;
    CHECK(0);
}

/* A function that passes its own argument on may be given NULL. */
static BOOL sets_with(HANDLE timer, PTIMERAPCROUTINE routine)
{
    LARGE_INTEGER due = ticks(-MILLISECOND);
    return SetWaitableTimer(timer, &due, 0, routine, NULL, FALSE);
}

static void a_variable_that_is_null_is_no_routine(void)
{
    HANDLE timer = CreateWaitableTimer(NULL, FALSE, NULL);
    CHECK_FALSE(sets_with(timer, is_not_called), ERROR_NOT_SUPPORTED);
    CHECK_IS(WaitForSingleObject(timer, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(sets_with(timer, NULL), TRUE);
    CHECK_IS(WaitForSingleObject(timer, SOON), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(timer), TRUE);
}
#endif

static void a_timer_with_a_period_comes_again(void)
{
    HANDLE timer = CreateWaitableTimerExW(NULL, NULL, CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, TIMER_ALL_ACCESS);
    ULONGLONG began = milliseconds();
    int i;
    set(timer, -10 * MILLISECOND, 20);
    for (i = 0; i < 4; i++) {
        CHECK_IS(WaitForSingleObject(timer, INFINITE), WAIT_OBJECT_0);
    }
    CHECK(milliseconds() - began >= 69);
    CHECK_IS(CloseHandle(timer), TRUE);
}

static void a_time_of_the_day_is_one_since_1601(void)
{
    HANDLE timer = CreateWaitableTimer(NULL, TRUE, NULL);
    FILETIME now;
    LARGE_INTEGER due;
    ULONGLONG began = milliseconds();
    GetSystemTimeAsFileTime(&now);
    due.LowPart = now.dwLowDateTime;
    due.HighPart = (LONG)now.dwHighDateTime;
    set(timer, due.QuadPart - 1, 0); /* in the past */
    CHECK_IS(WaitForSingleObject(timer, 0), WAIT_OBJECT_0);
    set(timer, due.QuadPart + 600000 * MILLISECOND, 0);
    CHECK_IS(WaitForSingleObject(timer, 0), WAIT_TIMEOUT);
    set(timer, due.QuadPart + 60 * MILLISECOND, 0);
    CHECK_IS(WaitForSingleObject(timer, INFINITE), WAIT_OBJECT_0);
    CHECK(milliseconds() - began >= 59);
    CHECK_IS(CloseHandle(timer), TRUE);
}

static HANDLE reset_timer;

static DWORD WINAPI sets_it_nearer(LPVOID unused)
{
    (void)unused;
    Sleep(A_WHILE);
    set(reset_timer, -MILLISECOND, 0);
    return 0;
}

static void a_wait_counts_from_the_new_time(void)
{
    HANDLE both[2], thread;
    reset_timer = CreateWaitableTimer(NULL, TRUE, NULL);
    set(reset_timer, -600000 * MILLISECOND, 0);
    both[0] = CreateEvent(NULL, FALSE, FALSE, NULL);
    both[1] = reset_timer;
    thread = CreateThread(NULL, 0, sets_it_nearer, NULL, 0, NULL);
    CHECK_IS(WaitForMultipleObjects(2, both, FALSE, INFINITE), WAIT_OBJECT_0 + 1);
    CHECK_IS(WaitForSingleObject(thread, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(thread), TRUE);
    CHECK_IS(CloseHandle(both[0]), TRUE);
    CHECK_IS(CloseHandle(both[1]), TRUE);
}

/* ---- semaphores --------------------------------------------------------------------------------------- */

static void a_semaphore_ends_so_many_waits(void)
{
    HANDLE semaphore = CreateSemaphore(NULL, 2, 3, NULL);
    LONG before = -1;
    CHECK(semaphore != NULL);
    CHECK_IS(WaitForSingleObject(semaphore, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(semaphore, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(semaphore, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(ReleaseSemaphore(semaphore, 2, &before), TRUE);
    CHECK_IS(before, 0);
    CHECK_FALSE(ReleaseSemaphore(semaphore, 2, &before), ERROR_TOO_MANY_POSTS);
    UNLESS_WINE("a semaphore is released not once")
        CHECK_FALSE(ReleaseSemaphore(semaphore, 0, NULL), ERROR_INVALID_PARAMETER);
    CHECK_IS(ReleaseSemaphore(semaphore, 1, &before), TRUE);
    CHECK_IS(before, 2);
    CHECK_IS(WaitForSingleObject(semaphore, 0), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(semaphore), TRUE);
    SetLastError(0);
    CHECK(CreateSemaphore(NULL, 2, 1, NULL) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
}

/* ---- functions that are called -------------------------------------------------------------------------- */

static volatile LONG signals, timeouts;
static HANDLE called, may_return;

static VOID CALLBACK counts(PVOID context, BOOLEAN timed_out)
{
    CHECK(context == &signals);
    InterlockedIncrement(timed_out ? &timeouts : &signals);
    CHECK_IS(ReleaseSemaphore(called, 1, NULL), TRUE);
}

static VOID CALLBACK takes_its_time(PVOID context, BOOLEAN timed_out)
{
    (void)context;
    CHECK(!timed_out);
    CHECK_IS(ReleaseSemaphore(called, 1, NULL), TRUE);
    CHECK_IS(WaitForSingleObject(may_return, INFINITE), WAIT_OBJECT_0);
    InterlockedIncrement(&signals);
}

static void was_called(void)
{
    CHECK_IS(WaitForSingleObject(called, SOON), WAIT_OBJECT_0);
}

static void a_function_is_called_for_each_signal(void)
{
    HANDLE event = CreateEvent(NULL, FALSE, FALSE, NULL), wait;
    CHECK(RegisterWaitForSingleObject(&wait, event, counts, (PVOID)&signals, INFINITE, WT_EXECUTEDEFAULT));
    CHECK_IS(WaitForSingleObject(called, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(SetEvent(event), TRUE);
    was_called();
    CHECK_IS(SetEvent(event), TRUE);
    was_called();
    CHECK_IS(signals, 2);
    CHECK_IS(UnregisterWaitEx(wait, INVALID_HANDLE_VALUE), TRUE);
    CHECK_IS(SetEvent(event), TRUE);
    CHECK_IS(WaitForSingleObject(called, A_WHILE), WAIT_TIMEOUT);
#if HAS_SOCKET_CALLS
    CHECK_FALSE(UnregisterWait(wait), ERROR_INVALID_HANDLE); /* elsewhere it is freed */
#endif

    /* Only once, after the timeout. */
    signals = 0;
    CHECK_IS(ResetEvent(event), TRUE);
    CHECK(RegisterWaitForSingleObject(&wait, event, counts, (PVOID)&signals, 10, WT_EXECUTEONLYONCE));
    was_called();
    CHECK_IS(WaitForSingleObject(called, 50), WAIT_TIMEOUT);
    CHECK_IS(signals, 0);
    CHECK_IS(timeouts, 1);
    CHECK_IS(UnregisterWaitEx(wait, INVALID_HANDLE_VALUE), TRUE);
    CHECK(RegisterWaitForSingleObject(&wait, event, counts, (PVOID)&signals, 10, WT_EXECUTEINWAITTHREAD));
    was_called();
    UNLESS_WINE("a registered wait is told of one time-out") {
        was_called();
        CHECK(timeouts >= 3);
    }
    CHECK_IS(UnregisterWaitEx(wait, INVALID_HANDLE_VALUE), TRUE);
    CHECK_IS(CloseHandle(event), TRUE);
}

static void to_unregister_tells_whether_a_call_goes_on(void)
{
    HANDLE event = CreateEvent(NULL, FALSE, FALSE, NULL), over = CreateEvent(NULL, TRUE, FALSE, NULL), wait;
    signals = 0;
    while (WaitForSingleObject(called, 0) == WAIT_OBJECT_0)
        continue;
    CHECK(RegisterWaitForSingleObject(&wait, event, takes_its_time, NULL, INFINITE, 0));
    CHECK_IS(SetEvent(event), TRUE);
    was_called();
    CHECK_FALSE(UnregisterWaitEx(wait, over), ERROR_IO_PENDING);
    CHECK_IS(WaitForSingleObject(over, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(SetEvent(may_return), TRUE);
    CHECK_IS(WaitForSingleObject(over, SOON), WAIT_OBJECT_0);
    CHECK_IS(signals, 1);
    /* If no call is in progress, the event is set as well. */
    CHECK_IS(ResetEvent(over), TRUE);
    CHECK(RegisterWaitForSingleObject(&wait, event, takes_its_time, NULL, INFINITE, 0));
    CHECK_IS(UnregisterWaitEx(wait, over), TRUE);
    CHECK_IS(WaitForSingleObject(over, SOON), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(over), TRUE);
#if HAS_SOCKET_CALLS
    CHECK_FALSE(RegisterWaitForSingleObject(&wait, over, counts, NULL, INFINITE, 0), ERROR_INVALID_HANDLE);
    CHECK_FALSE(RegisterWaitForSingleObject(&wait, event, NULL, NULL, INFINITE, 0), ERROR_INVALID_PARAMETER);
#endif
    CHECK_IS(CloseHandle(event), TRUE);
}

/* Threads cannot wait for a registered wait, but for a timer. */
static void a_function_is_called_for_a_timer(void)
{
    HANDLE timer = CreateWaitableTimer(NULL, FALSE, NULL), wait;
    signals = 0;
    set(timer, -5 * MILLISECOND, 5);
    CHECK(RegisterWaitForSingleObject(&wait, timer, counts, (PVOID)&signals, INFINITE, 0));
    was_called();
    was_called();
#if HAS_SOCKET_CALLS
    SetLastError(0);
    CHECK_IS(WaitForSingleObject(wait, 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
#endif
    CHECK_IS(UnregisterWaitEx(wait, INVALID_HANDLE_VALUE), TRUE);
    CHECK(signals >= 2);
    CHECK_IS(CloseHandle(timer), TRUE);
}

int main(void)
{
    start();
    called = CreateSemaphore(NULL, 0, 1000000, NULL);
    may_return = CreateEvent(NULL, TRUE, FALSE, NULL);
    a_timer_is_signalled_when_its_time_has_come();
#if HAS_SOCKET_CALLS && !defined __cplusplus
    a_variable_that_is_null_is_no_routine();
#endif
    a_timer_with_a_period_comes_again();
    a_time_of_the_day_is_one_since_1601();
    a_wait_counts_from_the_new_time();
    a_semaphore_ends_so_many_waits();
    a_function_is_called_for_each_signal();
    to_unregister_tells_whether_a_call_goes_on();
    a_function_is_called_for_a_timer();
    CHECK_IS(CloseHandle(called), TRUE);
    CHECK_IS(CloseHandle(may_return), TRUE);
    return finish();
}
