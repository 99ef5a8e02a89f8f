/* Which threads a signal releases: those waiting at that moment, even if none of them runs before the next call. Also
 * locks that starve no thread. The library reports how many threads wait, so no test depends on time. */
#include <winsock2.h>
#include <windows.h>

#include <pthread.h>
#include <sys/wait.h>

#include "check.h"

enum { MOST = 8 };

/* ---- threads that wait ------------------------------------------------------------------------------ */

/* A wait in another thread. */
typedef struct Waiter {
    HANDLE handles[3];
    DWORD count;
    BOOL all;
    DWORD milliseconds, result;
    HANDLE thread;
} Waiter;

static DWORD WINAPI waits(LPVOID argument)
{
    Waiter *waiter = (Waiter *)argument;
    waiter->result = WaitForMultipleObjects(waiter->count, waiter->handles, waiter->all, waiter->milliseconds);
    return 0;
}

static HANDLE new_thread(LPTHREAD_START_ROUTINE routine, void *argument)
{
    HANDLE thread = CreateThread(NULL, 0, routine, argument, 0, NULL);
    CHECK(thread != NULL);
    return thread;
}

/* Lets other threads run. */
static void let_others_run(void)
{
    if (is_slow())
        Sleep(1);
    else
        SwitchToThread();
}

static void until_waiting(HANDLE object, uint32_t count)
{
    while (cp_waiting(object) != count)
        let_others_run();
}

/* Waits until the thread has ended, and closes it. */
static void join(HANDLE thread)
{
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    CHECK(CloseHandle(thread));
}

/* Starts a thread that waits for one to three objects. Returns once it is waiting. */
static Waiter *start_wait(Waiter *waiter, BOOL all, HANDLE one, HANDLE other, HANDLE third)
{
    uint32_t before = cp_waiting(one);
    HANDLE handles[3];
    handles[0] = one;
    handles[1] = other;
    handles[2] = third;
    memcpy(waiter->handles, handles, sizeof handles);
    waiter->count = third ? 3 : other ? 2 : 1;
    waiter->all = all;
    waiter->milliseconds = INFINITE;
    waiter->result = UNTOUCHED;
    waiter->thread = new_thread(waits, waiter);
    until_waiting(one, before + 1 + (one == other));
    return waiter;
}

#define CHECK_RELEASED(waiter, expected) (join((waiter)->thread), CHECK_IS((waiter)->result, (expected)))

static HANDLE event_of(BOOL stays)
{
    HANDLE event = CreateEvent(NULL, stays, FALSE, NULL);
    CHECK(event != NULL);
    return event;
}

static int is_set(HANDLE object)
{
    return WaitForSingleObject(object, 0) == WAIT_OBJECT_0;
}

/* ---- one object ------------------------------------------------------------------------------------- */

static void each_signal_releases_a_thread_that_waits(void)
{
    HANDLE event = event_of(FALSE), semaphore = CreateSemaphore(NULL, 0, MOST, NULL);
    Waiter waiters[MOST];
    LONG before;
    int i;
    for (i = 0; i < MOST; i++)
        start_wait(&waiters[i], FALSE, event, NULL, NULL);
    for (i = 0; i < MOST; i++) {
        CHECK(SetEvent(event));
        CHECK_IS(cp_waiting(event), MOST - 1 - i);
        CHECK(!is_set(event)); /* the signal is not this thread's */
    }
    for (i = 0; i < MOST; i++)
        CHECK_RELEASED(&waiters[i], WAIT_OBJECT_0);
    CHECK(SetEvent(event));
    CHECK(SetEvent(event)); /* nobody waits, so it stays set for one wait */
    CHECK(is_set(event) && !is_set(event));

    for (i = 0; i < 3; i++)
        start_wait(&waiters[i], FALSE, semaphore, NULL, NULL);
    CHECK(ReleaseSemaphore(semaphore, 2, &before));
    CHECK_IS(before, 0);
    CHECK(!is_set(semaphore));
    CHECK(ReleaseSemaphore(semaphore, 3, &before)); /* two more than needed */
    CHECK_IS(before, 0);
    for (i = 0; i < 3; i++)
        CHECK_RELEASED(&waiters[i], WAIT_OBJECT_0);
    CHECK(is_set(semaphore) && is_set(semaphore) && !is_set(semaphore));
    CHECK(CloseHandle(event) && CloseHandle(semaphore));
}

static void a_reset_takes_nothing_back(void)
{
    HANDLE event = event_of(TRUE);
    Waiter waiters[MOST];
    int i, pulses;
    for (pulses = 0; pulses < 2; pulses++) {
        for (i = 0; i < MOST; i++)
            start_wait(&waiters[i], FALSE, event, NULL, NULL);
        if (pulses) {
            CHECK(PulseEvent(event));
        } else {
            CHECK(SetEvent(event));
            CHECK(ResetEvent(event));
        }
        CHECK_IS(cp_waiting(event), 0);
        CHECK(!is_set(event));
        for (i = 0; i < MOST; i++)
            CHECK_RELEASED(&waiters[i], WAIT_OBJECT_0);
    }
    CHECK(PulseEvent(event)); /* nobody waits */
    CHECK(!is_set(event));
    CHECK(CloseHandle(event));
    CHECK_FALSE(PulseEvent(event), ERROR_INVALID_HANDLE);
}

/* The oldest wait ends first. A wait that has timed out takes no signal. */
static void waits_end_in_their_order(void)
{
    HANDLE event = event_of(FALSE);
    Waiter waiters[3], late;
    int i;
    for (i = 0; i < 3; i++)
        start_wait(&waiters[i], FALSE, event, NULL, NULL);
    CHECK_IS(WaitForSingleObject(event, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(cp_waiting(event), 3);
    for (i = 0; i < 3; i++) {
        CHECK(SetEvent(event));
        CHECK_RELEASED(&waiters[i], WAIT_OBJECT_0);
    }
    CHECK(PulseEvent(event));
    CHECK(!is_set(event));
    start_wait(&waiters[0], FALSE, event, NULL, NULL);
    start_wait(&late, FALSE, event, NULL, NULL);
    CHECK(PulseEvent(event)); /* releases one of them */
    CHECK_RELEASED(&waiters[0], WAIT_OBJECT_0);
    CHECK_IS(cp_waiting(event), 1);
    CHECK(SetEvent(event));
    CHECK_RELEASED(&late, WAIT_OBJECT_0);
    CHECK(CloseHandle(event));
}

/* The end of a thread, and a timer. */
static void what_stays_signalled_releases_all(void)
{
    HANDLE event = event_of(FALSE), timer = CreateWaitableTimer(NULL, TRUE, NULL);
    LARGE_INTEGER due;
    Waiter first, of_end[2], of_timer[2];
    start_wait(&first, FALSE, event, NULL, NULL);
    start_wait(&of_end[0], FALSE, first.thread, NULL, NULL);
    start_wait(&of_end[1], TRUE, first.thread, timer, NULL);
    start_wait(&of_timer[0], FALSE, timer, NULL, NULL);
    start_wait(&of_timer[1], FALSE, timer, event, NULL);
    CHECK(SetEvent(event));
    CHECK_RELEASED(&of_end[0], WAIT_OBJECT_0);
    CHECK_RELEASED(&first, WAIT_OBJECT_0);
    CHECK_IS(cp_waiting(timer), 3);
    due.QuadPart = -1;
    CHECK(SetWaitableTimer(timer, &due, 0, NULL, NULL, FALSE));
    CHECK_RELEASED(&of_timer[0], WAIT_OBJECT_0);
    CHECK_RELEASED(&of_timer[1], WAIT_OBJECT_0);
    CHECK_RELEASED(&of_end[1], WAIT_OBJECT_0);
    CHECK(is_set(timer));
    CHECK(CloseHandle(event) && CloseHandle(timer));
}

/* ---- several objects -------------------------------------------------------------------------------- */

static void a_wait_takes_one_signal_of_several(void)
{
    HANDLE one = event_of(FALSE), other = event_of(FALSE);
    Waiter waiter;
    start_wait(&waiter, FALSE, one, other, NULL);
    CHECK(SetEvent(other));
    CHECK(SetEvent(one));
    CHECK_IS(cp_waiting(one) + cp_waiting(other), 0);
    CHECK_RELEASED(&waiter, WAIT_OBJECT_0 + 1);
    CHECK(is_set(one) && !is_set(other));

    /* The same object twice. */
    start_wait(&waiter, FALSE, one, one, NULL);
    CHECK(SetEvent(one));
    CHECK_IS(cp_waiting(one), 0);
    CHECK_RELEASED(&waiter, WAIT_OBJECT_0);
    CHECK(!is_set(one));

    /* A wait continues if a handle is closed meanwhile. */
    start_wait(&waiter, FALSE, one, other, NULL);
    CHECK(CloseHandle(one));
    CHECK_FALSE(SetEvent(one), ERROR_INVALID_HANDLE);
    CHECK(SetEvent(other));
    CHECK_RELEASED(&waiter, WAIT_OBJECT_0 + 1);
    CHECK(CloseHandle(other));
}

static void a_wait_for_all_takes_all_at_once(void)
{
    HANDLE once = event_of(FALSE), stays = event_of(TRUE), semaphore = CreateSemaphore(NULL, 0, MOST, NULL);
    Waiter waiter;
    start_wait(&waiter, TRUE, once, stays, semaphore);
    CHECK(SetEvent(once));
    CHECK(ReleaseSemaphore(semaphore, 1, NULL));
    CHECK(is_set(once)); /* this thread may take it */
    CHECK(SetEvent(stays));
    CHECK(ResetEvent(stays));
    CHECK_IS(cp_waiting(once), 1);
    CHECK(SetEvent(once));
    CHECK(PulseEvent(stays)); /* at that moment all are signalled */
    CHECK_IS(cp_waiting(once) + cp_waiting(stays) + cp_waiting(semaphore), 0);
    CHECK_RELEASED(&waiter, WAIT_OBJECT_0);
    CHECK(!is_set(once) && !is_set(stays) && !is_set(semaphore));

    /* A wait that times out takes nothing. */
    CHECK(SetEvent(once));
    CHECK_IS(WaitForMultipleObjects(3, waiter.handles, TRUE, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(cp_waiting(once) + cp_waiting(stays) + cp_waiting(semaphore), 0);
    CHECK(is_set(once));
    CHECK(CloseHandle(once) && CloseHandle(stays) && CloseHandle(semaphore));
}

static void a_wait_has_at_most_64_places(void)
{
    HANDLE events[MAXIMUM_WAIT_OBJECTS + 1];
    int i;
    for (i = 0; i <= MAXIMUM_WAIT_OBJECTS; i++)
        events[i] = event_of(FALSE);
    CHECK(SetEvent(events[MAXIMUM_WAIT_OBJECTS - 1]));
    CHECK_IS(WaitForMultipleObjects(MAXIMUM_WAIT_OBJECTS, events, TRUE, 0), WAIT_TIMEOUT);
    CHECK_IS(WaitForMultipleObjects(MAXIMUM_WAIT_OBJECTS, events, FALSE, 0), MAXIMUM_WAIT_OBJECTS - 1);
    SetLastError(0);
    CHECK_IS(WaitForMultipleObjects(MAXIMUM_WAIT_OBJECTS + 1, events, FALSE, 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    SetLastError(0);
    CHECK_IS(WaitForMultipleObjects(1, NULL, FALSE, 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    for (i = 0; i < MAXIMUM_WAIT_OBJECTS; i++)
        CHECK(SetEvent(events[i]));
    CHECK_IS(WaitForMultipleObjects(MAXIMUM_WAIT_OBJECTS, events, TRUE, 0), WAIT_OBJECT_0);
    /* If one handle is closed, the wait takes nothing from the others. */
    CHECK(SetEvent(events[0]));
    CHECK(CloseHandle(events[1]));
    SetLastError(0);
    CHECK_IS(WaitForMultipleObjects(2, events, FALSE, 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    CHECK(is_set(events[0]));
    for (i = 0; i <= MAXIMUM_WAIT_OBJECTS; i++)
        CHECK(i == 1 || CloseHandle(events[i]));
}

/* Only polling finds the packets of a port. */
static void ports_are_waited_for_beside_objects(void)
{
    HANDLE port = new_port(0), event = event_of(FALSE);
    Waiter any, all;
    start_wait(&all, TRUE, event, port, NULL);
    start_wait(&any, FALSE, event, port, NULL);
    CHECK(SetEvent(event));
    CHECK_RELEASED(&any, WAIT_OBJECT_0);
    CHECK(!is_set(event));
    CHECK(SetEvent(event)); /* not enough */
    CHECK_IS(cp_waiting(event), 1);
    CHECK(PostQueuedCompletionStatus(port, 0, 7, NULL));
    CHECK_RELEASED(&all, WAIT_OBJECT_0);
    CHECK(!is_set(event));
    CHECK_IS(WaitForMultipleObjects(2, any.handles, FALSE, INFINITE), WAIT_OBJECT_0 + 1);
    CHECK_NEXT(port, 7, 0);
    start_wait(&any, FALSE, event, port, NULL);
    CHECK(CloseHandle(port));
    CHECK_RELEASED(&any, WAIT_FAILED);
    CHECK_IS(cp_waiting(event), 0);
    CHECK(CloseHandle(event));
}

/* ---- many threads ----------------------------------------------------------------------------------- */

static HANDLE pools[3];
static volatile LONG taken, is_over;

/* Each signal is taken once, even if waits time out meanwhile. */
static DWORD WINAPI takes(LPVOID argument)
{
    BOOL all = (ULONG_PTR)argument & 1;
    DWORD limit = (ULONG_PTR)argument & 2 ? 0 : 1;
    while (!is_over) {
        DWORD result = WaitForMultipleObjects(3, pools, all, limit);
        CHECK(result == WAIT_TIMEOUT || result < WAIT_OBJECT_0 + 3u);
        if (result != WAIT_TIMEOUT)
            InterlockedExchangeAdd(&taken, all ? 3 : 1);
    }
    return 0;
}

static DWORD WINAPI gives(LPVOID unused)
{
    int i;
    (void)unused;
    for (i = 0; i < (is_slow() ? 300 : 3000); i++) {
        CHECK(ReleaseSemaphore(pools[i % 3], 1, NULL));
        if (i % 64 == 0)
            SwitchToThread();
    }
    return 0;
}

static void no_signal_is_lost_or_taken_twice(void)
{
    HANDLE takers[MOST], givers[2];
    LONG given = 2 * (is_slow() ? 300 : 3000), left = 0;
    int i;
    for (i = 0; i < 3; i++)
        pools[i] = CreateSemaphore(NULL, 0, 1000000, NULL);
    for (i = 0; i < MOST; i++)
        takers[i] = new_thread(takes, (LPVOID)(ULONG_PTR)i);
    for (i = 0; i < 2; i++)
        givers[i] = new_thread(gives, NULL);
    for (i = 0; i < 2; i++)
        join(givers[i]);
    InterlockedExchange(&is_over, 1);
    for (i = 0; i < MOST; i++)
        join(takers[i]);
    for (i = 0; i < 3; i++) {
        while (is_set(pools[i]))
            left++;
        CHECK_IS(cp_waiting(pools[i]), 0);
        CHECK(CloseHandle(pools[i]));
    }
    CHECK_IS(taken + left, given);
}

/* How often a thread has slept so far. */
static long sleeps_of(DWORD thread)
{
    char path[64], line[256];
    long count = -1;
    FILE *file;
    snprintf(path, sizeof path, "/proc/self/task/%u/status", thread);
    file = fopen(path, "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
            count = strtol(line + 24, NULL, 10);
    CHECK_IS(fclose(file), 0);
    return count;
}

static void a_signal_wakes_no_thread_that_waits_for_another_object(void)
{
    HANDLE idle = event_of(TRUE), event = event_of(FALSE);
    Waiter waiters[MOST];
    long before[MOST];
    int i;
    for (i = 0; i < MOST; i++)
        start_wait(&waiters[i], FALSE, idle, NULL, NULL);
    until_the_others_sleep();
    for (i = 0; i < MOST; i++)
        before[i] = sleeps_of(GetThreadId(waiters[i].thread));
    for (i = 0; i < 100; i++) {
        CHECK(SetEvent(event));
        CHECK(is_set(event));
    }
    until_the_others_sleep();
    for (i = 0; i < MOST; i++)
        CHECK_IS(sleeps_of(GetThreadId(waiters[i].thread)), before[i]);
    CHECK(SetEvent(idle));
    for (i = 0; i < MOST; i++)
        CHECK_RELEASED(&waiters[i], WAIT_OBJECT_0);
    CHECK(CloseHandle(idle) && CloseHandle(event));
}

/* A child has the objects, but none of the threads that wait for them. */
static void a_child_has_the_objects_and_nobody_who_waits(void)
{
    HANDLE event = event_of(FALSE), set = event_of(FALSE);
    Waiter waiter;
    int status;
    pid_t child;
    CHECK(SetEvent(set));
    start_wait(&waiter, FALSE, event, NULL, NULL);
    child = fork_at_rest();
    if (child == 0) {
        CHECK_IS(cp_waiting(event), 0);
        CHECK(is_set(set) && !is_set(set));
        CHECK(SetEvent(event));
        CHECK(is_set(event) && !is_set(event));
        start_wait(&waiter, FALSE, event, set, NULL);
        CHECK(SetEvent(event));
        CHECK_RELEASED(&waiter, WAIT_OBJECT_0);
        CHECK(CloseHandle(event) && CloseHandle(set));
        _exit(0);
    }
    CHECK_IS(waitpid(child, &status, 0), child);
    CHECK_IS(status, 0);
    CHECK_IS(cp_waiting(event), 1);
    CHECK(SetEvent(event));
    CHECK_RELEASED(&waiter, WAIT_OBJECT_0);
    CHECK(is_set(set));
    CHECK(CloseHandle(event) && CloseHandle(set));
}

/* ---- mutexes ---------------------------------------------------------------------------------------- */

static HANDLE mutex, other_mutex;

static DWORD WINAPI ends_with_both(LPVOID unused)
{
    (void)unused;
    CHECK_IS(WaitForSingleObject(mutex, SOON), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(mutex, SOON), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(other_mutex, SOON), WAIT_OBJECT_0);
    return 0;
}

static void *ends_with_one(void *unused)
{
    CHECK_IS(WaitForSingleObject(mutex, SOON), WAIT_OBJECT_0);
    return unused;
}

static DWORD WINAPI releases_what_it_has_not(LPVOID unused)
{
    (void)unused;
    CHECK_FALSE(ReleaseMutex(mutex), ERROR_NOT_OWNER);
    CHECK_IS(WaitForSingleObject(mutex, 0), WAIT_TIMEOUT);
    return 0;
}

static void a_mutex_belongs_to_a_thread(void)
{
    HANDLE event = event_of(FALSE);
    Waiter waiters[2];
    int i;
    mutex = CreateMutex(NULL, FALSE, NULL);
    CHECK(mutex != NULL);
    CHECK_FALSE(ReleaseMutex(mutex), ERROR_NOT_OWNER);
    for (i = 0; i < 3; i++)
        CHECK_IS(WaitForSingleObject(mutex, 0), WAIT_OBJECT_0); /* its owner may wait again */
    join(new_thread(releases_what_it_has_not, NULL));
    start_wait(&waiters[0], FALSE, mutex, NULL, NULL);
    start_wait(&waiters[1], FALSE, event, mutex, NULL);
    for (i = 0; i < 3; i++) {
        CHECK_IS(cp_waiting(mutex), 2);
        CHECK(ReleaseMutex(mutex));
    }
    CHECK_FALSE(ReleaseMutex(mutex), ERROR_NOT_OWNER); /* it has a new owner */
    CHECK_RELEASED(&waiters[0], WAIT_OBJECT_0);
    CHECK_RELEASED(&waiters[1], WAIT_ABANDONED_0 + 1); /* the previous owner has ended without releasing it */
    CHECK_IS(WaitForSingleObject(mutex, SOON), WAIT_ABANDONED);
    CHECK(ReleaseMutex(mutex));
    CHECK(CloseHandle(mutex) && CloseHandle(event));
    mutex = CreateMutexEx(NULL, NULL, CREATE_MUTEX_INITIAL_OWNER, MUTEX_ALL_ACCESS);
    join(new_thread(releases_what_it_has_not, NULL));
    CHECK(ReleaseMutex(mutex));
    CHECK_FALSE(ReleaseMutex(mutex), ERROR_NOT_OWNER);
    CHECK(CloseHandle(mutex));
    CHECK_FALSE(ReleaseMutex(mutex), ERROR_INVALID_HANDLE);
    CHECK_FALSE(SetEvent(mutex), ERROR_INVALID_HANDLE);
}

static DWORD WINAPI takes_the_named_one(LPVOID unused)
{
    HANDLE again = CreateMutexW(NULL, TRUE, L"a mutex");
    (void)unused;
    CHECK(again != NULL && GetLastError() == ERROR_ALREADY_EXISTS);
    CHECK_IS(WaitForSingleObject(again, 0), WAIT_TIMEOUT); /* it is not created, so it is not owned */
    CHECK_FALSE(ReleaseMutex(again), ERROR_NOT_OWNER);
    CHECK(CloseHandle(again));
    return 0;
}

/* A name belongs to one object of the process until the last handle of that is closed. */
static void objects_may_have_names(void)
{
    HANDLE first, second, other;
    char name[300];
    SetLastError(7);
    mutex = CreateMutexA(NULL, TRUE, "a mutex");
    CHECK(mutex != NULL && GetLastError() == 0);
    join(new_thread(takes_the_named_one, NULL));
    second = OpenMutexA(SYNCHRONIZE, FALSE, "Local\\a mutex");
    CHECK(second != NULL && second != mutex);
    CHECK(ReleaseMutex(second) && CloseHandle(second));
    CHECK_FALSE(ReleaseMutex(mutex), ERROR_NOT_OWNER);
    CHECK(CreateEventA(NULL, TRUE, FALSE, "a mutex") == NULL && GetLastError() == ERROR_INVALID_HANDLE);
    CHECK(OpenEventA(SYNCHRONIZE, FALSE, "a mutex") == NULL && GetLastError() == ERROR_INVALID_HANDLE);
    CHECK(OpenMutexW(SYNCHRONIZE, FALSE, L"A mutex") == NULL && GetLastError() == ERROR_FILE_NOT_FOUND);
    CHECK(CloseHandle(mutex));
    CHECK(OpenMutexA(SYNCHRONIZE, FALSE, "a mutex") == NULL && GetLastError() == ERROR_FILE_NOT_FOUND);

    first = CreateEventW(NULL, TRUE, FALSE, L"a mutex"); /* the name is free again */
    CHECK(first != NULL && GetLastError() == 0);
    second = CreateEventExA(NULL, "a mutex", 0, SYNCHRONIZE);
    CHECK(second != NULL && GetLastError() == ERROR_ALREADY_EXISTS);
    other = CreateEventA(NULL, TRUE, FALSE, "Global\\a mutex");
    CHECK(other != NULL && GetLastError() == 0);
    CHECK(CloseHandle(first)); /* the other handle keeps the object */
    first = OpenEventA(EVENT_MODIFY_STATE | SYNCHRONIZE, FALSE, "a mutex");
    CHECK(SetEvent(second));
    CHECK_IS(WaitForSingleObject(first, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(other, 0), WAIT_TIMEOUT);
    CHECK(CloseHandle(first) && CloseHandle(second) && CloseHandle(other));

    first = CreateSemaphoreA(NULL, 1, 2, "\xC3\xA4");
    second = OpenSemaphoreW(SEMAPHORE_MODIFY_STATE, FALSE, L"\u00E4");
    CHECK(first != NULL && second != NULL);
    CHECK_IS(WaitForSingleObject(second, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(first, 0), WAIT_TIMEOUT);
    CHECK(CloseHandle(first) && CloseHandle(second));

    first = CreateMutexA(NULL, FALSE, "");
    second = CreateMutexA(NULL, FALSE, "");
    CHECK(first != NULL && second != NULL && GetLastError() == 0); /* an empty name is none */
    CHECK(CloseHandle(first) && CloseHandle(second));
    CHECK(CreateMutexA(NULL, FALSE, "no\\folder") == NULL && GetLastError() == ERROR_PATH_NOT_FOUND);
    CHECK(OpenMutexA(SYNCHRONIZE, FALSE, NULL) == NULL && GetLastError() == ERROR_INVALID_PARAMETER);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK(CreateMutexA(NULL, TRUE, name) == NULL && GetLastError() == ERROR_FILENAME_EXCED_RANGE);
}

static void the_end_of_a_thread_abandons_its_mutexes(void)
{
    HANDLE all[3], thread;
    pthread_t of_the_system;
    mutex = CreateMutex(NULL, FALSE, NULL);
    other_mutex = CreateMutex(NULL, TRUE, NULL);
    CHECK(ReleaseMutex(other_mutex));
    thread = new_thread(ends_with_both, NULL);
    all[0] = mutex;
    all[1] = other_mutex;
    all[2] = thread;
    /* Once a thread is seen to have ended, its mutexes are free. */
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    CHECK_IS(WaitForMultipleObjects(3, all, TRUE, 0), WAIT_ABANDONED_0);
    CHECK_IS(WaitForMultipleObjects(3, all, TRUE, 0), WAIT_OBJECT_0); /* once more, as their owner */
    CHECK(ReleaseMutex(mutex) && ReleaseMutex(mutex) && ReleaseMutex(other_mutex) && ReleaseMutex(other_mutex));
    CHECK_FALSE(ReleaseMutex(mutex), ERROR_NOT_OWNER);
    CHECK(CloseHandle(thread));
    /* Also for a thread that the library did not create. */
    CHECK_IS(pthread_create(&of_the_system, NULL, ends_with_one, NULL), 0);
    CHECK_IS(pthread_join(of_the_system, NULL), 0);
    CHECK_IS(WaitForSingleObject(mutex, SOON), WAIT_ABANDONED);
    CHECK(CloseHandle(other_mutex) && CloseHandle(mutex)); /* it still owns it */
}

static DWORD WINAPI counts_with_mutex(LPVOID count)
{
    int i;
    for (i = 0; i < (is_slow() ? 100 : 1000); i++) {
        CHECK_IS(WaitForSingleObject(mutex, SOON), WAIT_OBJECT_0);
        ++*(int *)count;
        CHECK(ReleaseMutex(mutex));
    }
    return 0;
}

static void a_mutex_excludes(void)
{
    HANDLE threads[4];
    int count = 0, i;
    mutex = CreateMutex(NULL, FALSE, NULL);
    for (i = 0; i < 4; i++)
        threads[i] = new_thread(counts_with_mutex, &count);
    for (i = 0; i < 4; i++)
        join(threads[i]);
    CHECK_IS(count, 4 * (is_slow() ? 100 : 1000));
    CHECK(CloseHandle(mutex));
}

/* ---- locks ------------------------------------------------------------------------------------------ */

static SRWLOCK lock = SRWLOCK_INIT;
static HANDLE may_leave;
static volatile LONG order;
static LONG came[2];

static DWORD WINAPI has_it_alone(LPVOID unused)
{
    (void)unused;
    AcquireSRWLockExclusive(&lock);
    came[0] = InterlockedIncrement(&order);
    CHECK_IS(WaitForSingleObject(may_leave, SOON), WAIT_OBJECT_0);
    ReleaseSRWLockExclusive(&lock);
    return 0;
}

static DWORD WINAPI shares_it(LPVOID unused)
{
    (void)unused;
    AcquireSRWLockShared(&lock);
    came[1] = InterlockedIncrement(&order);
    CHECK_IS(WaitForSingleObject(may_leave, SOON), WAIT_OBJECT_0);
    ReleaseSRWLockShared(&lock);
    return 0;
}

static void until_at_lock(uint64_t of, uint64_t count)
{
    while ((cp_srw_state(&lock) & of) != count)
        let_others_run();
}

static void a_thread_that_waits_to_have_a_lock_alone_keeps_others_out(void)
{
    HANDLE alone, shares;
    may_leave = CreateSemaphore(NULL, 0, MOST, NULL);
    AcquireSRWLockShared(&lock);
    alone = new_thread(has_it_alone, NULL);
    until_at_lock(CP_SRW_WRITERS, CP_SRW_WRITER);
    CHECK(!TryAcquireSRWLockShared(&lock)); /* so a chain of shared uses cannot keep it out */
    CHECK(!TryAcquireSRWLockExclusive(&lock));
    shares = new_thread(shares_it, NULL);
    until_at_lock(CP_SRW_READERS, CP_SRW_READER);
    ReleaseSRWLockShared(&lock);
    CHECK(ReleaseSemaphore(may_leave, 2, NULL));
    join(alone);
    join(shares);
    CHECK_IS(came[0], 1);
    CHECK_IS(came[1], 2);
    CHECK_IS(cp_srw_state(&lock) & ~CP_SRW_TURN, cp_srw_state(&lock) & (UINT64_C(0x7FFF) << 49));
    CHECK(CloseHandle(may_leave));
}

static void a_lock_that_was_had_alone_is_handed_to_those_that_share_it(void)
{
    HANDLE alone, shares[2];
    int i;
    order = 0;
    may_leave = CreateSemaphore(NULL, 0, MOST, NULL);
    AcquireSRWLockExclusive(&lock);
    alone = new_thread(has_it_alone, NULL);
    until_at_lock(CP_SRW_WRITERS, CP_SRW_WRITER);
    for (i = 0; i < 2; i++)
        shares[i] = new_thread(shares_it, NULL);
    until_at_lock(CP_SRW_READERS, 2 * CP_SRW_READER);
    ReleaseSRWLockExclusive(&lock);
    CHECK(!TryAcquireSRWLockExclusive(&lock)); /* it is theirs, even before they run */
    CHECK_IS(cp_srw_state(&lock) & CP_SRW_HOLDERS, 2);
    CHECK(!TryAcquireSRWLockShared(&lock));
    CHECK(ReleaseSemaphore(may_leave, 3, NULL));
    join(alone);
    for (i = 0; i < 2; i++)
        join(shares[i]);
    CHECK_IS(came[0], 3);
    CHECK(TryAcquireSRWLockExclusive(&lock));
    ReleaseSRWLockExclusive(&lock);
    CHECK(CloseHandle(may_leave));
}

/* A thread that has released a lock does not touch it: the next one may free it. */
typedef struct Freed {
    SRWLOCK lock;
    int shares;
} Freed;

static DWORD WINAPI frees_it(LPVOID argument)
{
    Freed *freed = (Freed *)argument;
    AcquireSRWLockExclusive(&freed->lock);
    ReleaseSRWLockExclusive(&freed->lock);
    memset(argument, 0xFF, sizeof *freed);
    free(freed);
    return 0;
}

static void a_lock_may_be_freed_by_whom_it_is_handed_to(void)
{
    int i;
    for (i = 0; i < tries(50, 5000); i++) {
        Freed *freed = (Freed *)calloc(1, sizeof *freed);
        HANDLE thread;
        CHECK(freed != NULL);
        InitializeSRWLock(&freed->lock);
        if (i % 2)
            AcquireSRWLockShared(&freed->lock);
        else
            AcquireSRWLockExclusive(&freed->lock);
        thread = new_thread(frees_it, freed);
        SwitchToThread();
        if (i % 2)
            ReleaseSRWLockShared(&freed->lock);
        else
            ReleaseSRWLockExclusive(&freed->lock);
        join(thread);
    }
}

static CONDITION_VARIABLE changed = CONDITION_VARIABLE_INIT;
static LONG turn, sums[2];

/* Each thread changes the data that the lock guards, reads it together with others, and waits for its turn in both
 * ways. */
static DWORD WINAPI takes_turns(LPVOID argument)
{
    LONG mine = (LONG)(ULONG_PTR)argument, i;
    for (i = 0; i < (is_slow() ? 20 : 200); i++) {
        AcquireSRWLockShared(&lock);
        while (turn % 4 != mine) {
            CHECK_IS(sums[0], sums[1]);
            CHECK(SleepConditionVariableSRW(&changed, &lock, INFINITE, CONDITION_VARIABLE_LOCKMODE_SHARED));
        }
        ReleaseSRWLockShared(&lock);
        AcquireSRWLockExclusive(&lock);
        sums[0]++;
        turn++;
        sums[1]++;
        ReleaseSRWLockExclusive(&lock);
        WakeAllConditionVariable(&changed);
    }
    return 0;
}

static void readers_and_writers_take_turns(void)
{
    HANDLE threads[4];
    int i;
    for (i = 0; i < 4; i++)
        threads[i] = new_thread(takes_turns, (LPVOID)(ULONG_PTR)i);
    for (i = 0; i < 4; i++)
        join(threads[i]);
    CHECK_IS(turn, 4 * (is_slow() ? 20 : 200));
    CHECK_IS(sums[0], turn);
    CHECK_IS(cp_srw_state(&lock) & (CP_SRW_HOLDERS | CP_SRW_WRITERS | CP_SRW_READERS | CP_SRW_WOKEN), 0);
}

/* The array of handles may lie anywhere. */
static void handles_may_lie_at_any_address(void)
{
    char bytes[2 * sizeof(HANDLE) + 1];
    HANDLE events[2];
    events[0] = CreateEventA(NULL, TRUE, FALSE, NULL);
    events[1] = CreateEventA(NULL, TRUE, TRUE, NULL);
    memcpy(bytes + 1, events, sizeof events);
    CHECK_IS(WaitForMultipleObjects(2, (const HANDLE *)(const void *)(bytes + 1), FALSE, 0), WAIT_OBJECT_0 + 1);
    CHECK(CloseHandle(events[0]) && CloseHandle(events[1]));
}

int main(void)
{
    start();
    handles_may_lie_at_any_address();
    each_signal_releases_a_thread_that_waits();
    a_reset_takes_nothing_back();
    waits_end_in_their_order();
    what_stays_signalled_releases_all();
    a_wait_takes_one_signal_of_several();
    a_wait_for_all_takes_all_at_once();
    a_wait_has_at_most_64_places();
    ports_are_waited_for_beside_objects();
    no_signal_is_lost_or_taken_twice();
    a_signal_wakes_no_thread_that_waits_for_another_object();
    a_child_has_the_objects_and_nobody_who_waits();
    a_mutex_belongs_to_a_thread();
    objects_may_have_names();
    the_end_of_a_thread_abandons_its_mutexes();
    a_mutex_excludes();
    a_thread_that_waits_to_have_a_lock_alone_keeps_others_out();
    a_lock_that_was_had_alone_is_handed_to_those_that_share_it();
    a_lock_may_be_freed_by_whom_it_is_handed_to();
    readers_and_writers_take_turns();
    return finish();
}
