/* Other functions that sources use: threads and waits for them, locks, clocks, atomic operations. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include "check.h"

enum { THREADS = 4, ROUNDS = 20000 };

static int rounds(void)
{
    return is_slow() ? ROUNDS / 40 : ROUNDS;
}

/* ---- threads -------------------------------------------------------------------------------------- */

static HANDLE may_go;

static DWORD WINAPI returns_its_argument(LPVOID argument)
{
    return (DWORD)(ULONG_PTR)argument;
}

static DWORD WINAPI waits_and_tells_its_number(LPVOID number)
{
    CHECK_IS(WaitForSingleObject(may_go, INFINITE), WAIT_OBJECT_0);
    *(DWORD *)number = GetCurrentThreadId();
    return 7;
}

static HANDLE new_thread(LPTHREAD_START_ROUTINE routine, void *argument, DWORD *id)
{
    HANDLE thread = CreateThread(NULL, 0, routine, argument, 0, id);
    CHECK(thread != NULL);
    return thread;
}

static void threads_run_and_are_waited_for(void)
{
    HANDLE threads[THREADS];
    DWORD numbers[THREADS] = {0}, ids[THREADS] = {0}, code;
    int i, k;
    may_go = CreateEvent(NULL, TRUE, FALSE, NULL);
    CHECK(may_go != NULL);
    for (i = 0; i < THREADS; i++) {
        threads[i] = new_thread(waits_and_tells_its_number, &numbers[i], &ids[i]);
        CHECK(ids[i] != 0 && ids[i] != GetCurrentThreadId());
    }
    CHECK_IS(WaitForSingleObject(threads[0], 0), WAIT_TIMEOUT);
    CHECK_IS(WaitForMultipleObjects(THREADS, threads, TRUE, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(WaitForMultipleObjects(THREADS, threads, FALSE, 0), WAIT_TIMEOUT);
    CHECK_IS(GetExitCodeThread(threads[0], &code), TRUE);
    CHECK_IS(code, STILL_ACTIVE);
    CHECK_IS(SetEvent(may_go), TRUE);
    CHECK_IS(WaitForMultipleObjects(THREADS, threads, TRUE, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(WaitForMultipleObjects(THREADS, threads, FALSE, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(threads[1], INFINITE), WAIT_OBJECT_0); /* a thread that has ended stays so */
    for (i = 0; i < THREADS; i++) {
        CHECK_IS(numbers[i], ids[i]);
        for (k = 0; k < i; k++) {
            CHECK(ids[i] != ids[k]);
        }
        CHECK_IS(GetExitCodeThread(threads[i], &code), TRUE);
        CHECK_IS(code, 7);
        CHECK_IS(CloseHandle(threads[i]), TRUE);
        CHECK_FALSE(CloseHandle(threads[i]), ERROR_INVALID_HANDLE);
    }
    SetLastError(0);
    CHECK_IS(WaitForSingleObject(threads[0], 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    SetLastError(0);
    CHECK_IS(WaitForMultipleObjects(0, threads, TRUE, 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_IS(CloseHandle(may_go), TRUE);

    /* The handle may be closed while its thread runs, or has not been looked at. */
    threads[0] = new_thread(returns_its_argument, (void *)(ULONG_PTR)0xFFFFFFFFu, NULL);
    CHECK_IS(WaitForSingleObject(threads[0], INFINITE), WAIT_OBJECT_0);
    CHECK_IS(GetExitCodeThread(threads[0], &code), TRUE);
    CHECK_IS(code, 0xFFFFFFFFu);
    CHECK_IS(CloseHandle(threads[0]), TRUE);
    for (i = 0; i < 20; i++) {
        CHECK_IS(CloseHandle(new_thread(returns_its_argument, NULL, NULL)), TRUE);
    }
    CHECK(CreateThread(NULL, 0, NULL, NULL, 0, NULL) == NULL);
}

/* An object is not a port, and a port is not an event. */
static void handles_of_one_kind_are_no_others(void)
{
    HANDLE port = new_port(0), event = CreateEvent(NULL, FALSE, FALSE, NULL);
    CHECK_FALSE(SetEvent(port), ERROR_INVALID_HANDLE);
    CHECK_FALSE(PostQueuedCompletionStatus(event, 0, 0, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(ProcessSocketNotifications(event, 0, NULL, 0, 0, NULL, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(CloseHandle(event), TRUE);
    CHECK_FALSE(SetEvent(event), ERROR_INVALID_HANDLE);
    CHECK_IS(CloseHandle(port), TRUE);
    SetLastError(0);
    CHECK_IS(WaitForSingleObject(port, 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
}

static HANDLE tagged(HANDLE handle, unsigned tag)
{
    return (HANDLE)((uintptr_t)handle | tag);
}

/* Calls ignore the two lowest bits of a handle. overlapped_files.c tests those of files. */
static void the_lowest_bits_of_a_handle_are_the_programs_own(void)
{
    unsigned tag;
    for (tag = 1; tag < 4; tag++) {
        HANDLE event = CreateEvent(NULL, TRUE, FALSE, NULL), semaphore = CreateSemaphore(NULL, 0, 2, NULL), both[2];
        HANDLE port = new_port(0), thread = CreateThread(NULL, 0, returns_its_argument, NULL, CREATE_SUSPENDED, NULL);
        HANDLE timer = CreateWaitableTimer(NULL, TRUE, NULL);
        LARGE_INTEGER at_once;
        DWORD count, code;
        ULONG_PTR key;
        LPOVERLAPPED which;
        SOCKET s = udp_socket();
        OVERLAPPED_ENTRY entry;
        CHECK(SetEvent(tagged(event, tag)));
        CHECK_IS(WaitForSingleObject(tagged(event, tag), 0), WAIT_OBJECT_0);
        CHECK(ResetEvent(tagged(event, tag)));
        CHECK_IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
        both[0] = event;
        both[1] = tagged(event, tag);
        SetLastError(0);
        CHECK_IS(WaitForMultipleObjects(2, both, TRUE, 0), WAIT_FAILED);
        CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
        CHECK(ReleaseSemaphore(tagged(semaphore, tag), 1, NULL));
        CHECK_IS(WaitForSingleObject(tagged(semaphore, tag), 0), WAIT_OBJECT_0);
        at_once.QuadPart = 0;
        CHECK(SetWaitableTimer(tagged(timer, tag), &at_once, 0, NULL, NULL, FALSE));
        CHECK_IS(WaitForSingleObject(tagged(timer, tag), SOON), WAIT_OBJECT_0);
        CHECK(CancelWaitableTimer(tagged(timer, tag)));
        CHECK_IS(ResumeThread(tagged(thread, tag)), 1);
        CHECK_IS(WaitForSingleObject(tagged(thread, tag), SOON), WAIT_OBJECT_0);
        CHECK(GetThreadId(tagged(thread, tag)) == GetThreadId(thread));
        CHECK(GetExitCodeThread(tagged(thread, tag), &code));
        CHECK(CreateIoCompletionPort((HANDLE)s, tagged(port, tag), 5, 0) != NULL);
        CHECK(PostQueuedCompletionStatus(tagged(port, tag), 1, 2, NULL));
        CHECK_IS(WaitForSingleObject(tagged(port, tag), SOON), WAIT_OBJECT_0);
        CHECK(GetQueuedCompletionStatus(tagged(port, tag), &count, &key, &which, SOON));
        CHECK_IS(key, 2);
        CHECK_FALSE(GetQueuedCompletionStatusEx(tagged(port, tag), &entry, 1, &count, 0, FALSE), WAIT_TIMEOUT);
        CHECK_IS(enable(tagged(port, tag), s, 6, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_NEXT(port, 6, SOCK_NOTIFY_EVENT_OUT);
        CHECK_IS(closesocket(s), 0);
        CHECK(SetHandleInformation(tagged(event, tag), HANDLE_FLAG_INHERIT, 0));
        CHECK(CloseHandle(tagged(event, tag)) && CloseHandle(tagged(semaphore, tag)));
        CHECK(CloseHandle(tagged(timer, tag)) && CloseHandle(tagged(thread, tag)) && CloseHandle(tagged(port, tag)));
        CHECK_FALSE(CloseHandle(event), ERROR_INVALID_HANDLE);
        CHECK_FALSE(CloseHandle(tagged(port, tag)), ERROR_INVALID_HANDLE);
        CHECK_FALSE(SetEvent(tagged(NULL, tag)), ERROR_INVALID_HANDLE);
    }
}

/* ---- ports ---------------------------------------------------------------------------------------- */

static DWORD WINAPI posts_in_a_while(LPVOID port)
{
    Sleep(A_WHILE);
    CHECK_IS(PostQueuedCompletionStatus(port, 0, 7, NULL), TRUE);
    return 0;
}

static DWORD WINAPI closes_in_a_while(LPVOID port)
{
    Sleep(A_WHILE);
    CHECK_IS(CloseHandle(port), TRUE);
    return 0;
}

static void ports_are_signalled_while_packets_are_queued(void)
{
    HANDLE port = new_port(1), event = CreateEvent(NULL, TRUE, FALSE, NULL), both[2], thread;
    SOCKET s = udp_socket();
    struct sockaddr_in address = bind_to_loopback(s);
    int i;
    both[0] = event;
    both[1] = port;
    CHECK_IS(WaitForSingleObject(port, 0), WAIT_TIMEOUT);
    CHECK_IS(WaitForSingleObject(port, A_WHILE), WAIT_TIMEOUT);

    /* A posted packet, which stays until it is taken. */
    CHECK_IS(PostQueuedCompletionStatus(port, 0, 7, NULL), TRUE);
    SetLastError(123);
    CHECK_IS(WaitForSingleObject(port, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(port, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(WaitForMultipleObjects(2, both, FALSE, INFINITE), WAIT_OBJECT_0 + 1);
    CHECK_IS(WaitForMultipleObjects(2, both, TRUE, A_WHILE), WAIT_TIMEOUT);
    CHECK_IS(SetEvent(event), TRUE);
    CHECK_IS(WaitForMultipleObjects(2, both, TRUE, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(GetLastError(), 123);
    CHECK_NEXT(port, 7, 0);
    CHECK_IS(WaitForSingleObject(port, 0), WAIT_TIMEOUT);
    CHECK_IS(WaitForMultipleObjects(2, both, FALSE, INFINITE), WAIT_OBJECT_0);

    /* A socket's event, even if no thread waits on the port, and a last packet. */
    CHECK_IS(enable(port, s, 8, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_IS(WaitForSingleObject(port, A_WHILE), WAIT_TIMEOUT);
    for (i = 0; i < 2; i++) {
        char byte;
        send_to(s, "x", 1, &address);
        CHECK_IS(WaitForSingleObject(port, INFINITE), WAIT_OBJECT_0);
        CHECK_NEXT(port, 8, SOCK_NOTIFY_EVENT_IN);
        CHECK_IS(WaitForSingleObject(port, 0), WAIT_TIMEOUT);
        CHECK_IS(recv(s, &byte, 1, 0), 1);
        CHECK_IS(enable(port, s, 8, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        CHECK_IS(WaitForSingleObject(port, 0), WAIT_TIMEOUT);
    }
    CHECK_IS(unregister(port, s), ERROR_SUCCESS);
    CHECK_IS(WaitForSingleObject(port, 0), WAIT_OBJECT_0);
    CHECK_NEXT(port, 8, SOCK_NOTIFY_EVENT_REMOVE);
    CHECK_IS(WaitForSingleObject(port, 0), WAIT_TIMEOUT);

    /* From another thread, while this one waits. */
    thread = new_thread(posts_in_a_while, port, NULL);
    CHECK_IS(WaitForSingleObject(port, INFINITE), WAIT_OBJECT_0);
    CHECK_NEXT(port, 7, 0);
    CHECK_IS(WaitForSingleObject(thread, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(thread), TRUE);
    thread = new_thread(closes_in_a_while, port, NULL);
    SetLastError(0);
    CHECK_IS(WaitForSingleObject(port, INFINITE), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    CHECK_IS(WaitForSingleObject(thread, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(thread), TRUE);
    CHECK_IS(CloseHandle(event), TRUE);
    CHECK_IS(closesocket(s), 0);
}

static void events_are_set_and_reset(void)
{
    HANDLE once = CreateEvent(NULL, FALSE, TRUE, NULL), lasting = CreateEventA(NULL, TRUE, FALSE, NULL), both[2];
    CHECK(once != NULL && lasting != NULL);
    both[0] = once;
    both[1] = lasting;
    CHECK_IS(WaitForMultipleObjects(2, both, TRUE, 0), WAIT_TIMEOUT);
    CHECK_IS(WaitForMultipleObjects(2, both, FALSE, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(once, 0), WAIT_TIMEOUT); /* the wait has reset it */
    CHECK_IS(SetEvent(lasting), TRUE);
    CHECK_IS(WaitForMultipleObjects(2, both, FALSE, INFINITE), WAIT_OBJECT_0 + 1);
    CHECK_IS(WaitForSingleObject(lasting, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(SetEvent(once), TRUE);
    CHECK_IS(WaitForMultipleObjects(2, both, TRUE, INFINITE), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(once, 0), WAIT_TIMEOUT);
    CHECK_IS(WaitForSingleObject(lasting, 0), WAIT_OBJECT_0);
    CHECK_IS(ResetEvent(lasting), TRUE);
    CHECK_IS(WaitForSingleObject(lasting, A_WHILE), WAIT_TIMEOUT);
    /* One signal is not there for each of two copies, which a wait for either may have. */
    CHECK_IS(SetEvent(once), TRUE);
    both[1] = once;
    SetLastError(0);
    CHECK_IS(WaitForMultipleObjects(2, both, TRUE, 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_IS(WaitForMultipleObjects(2, both, FALSE, 0), WAIT_OBJECT_0);
    CHECK_IS(CloseHandle(once), TRUE);
    CHECK_IS(CloseHandle(lasting), TRUE);
}

static void events_are_made_by_flags_too(void)
{
    HANDLE event = CreateEventExW(NULL, NULL, CREATE_EVENT_MANUAL_RESET | CREATE_EVENT_INITIAL_SET, 0);
    CHECK_IS(WaitForSingleObjectEx(event, 0, TRUE), WAIT_OBJECT_0);
    CHECK_IS(WaitForMultipleObjectsEx(1, &event, TRUE, 0, TRUE), WAIT_OBJECT_0); /* stays */
    CHECK_IS(CloseHandle(event), TRUE);
    CHECK(CreateEventExA(NULL, NULL, 4, EVENT_ALL_ACCESS) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK(CreateMutexExW(NULL, NULL, 2, MUTEX_ALL_ACCESS) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK(CreateWaitableTimerExA(NULL, NULL, 8, TIMER_ALL_ACCESS) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    event = CreateEventExA(NULL, NULL, 0, 0);
    CHECK_IS(WaitForSingleObjectEx(event, 0, FALSE), WAIT_TIMEOUT);
    CHECK_IS(SetEvent(event), TRUE);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
    CHECK_IS(CloseHandle(event), TRUE);
    event = CreateEventExW(NULL, L"name", 0, 0);
    CHECK(event != NULL && GetLastError() == 0);
    CHECK_IS(CloseHandle(event), TRUE);
}

/* ---- locks ----------------------------------------------------------------------------------------- */

static SRWLOCK lock = SRWLOCK_INIT;
static CRITICAL_SECTION section;
static long long guarded_by_lock, its_twin, guarded_by_section;
static volatile LONG added;
static volatile LONG64 added_wide;

static DWORD WINAPI counts(LPVOID unused)
{
    int i;
    (void)unused;
    for (i = 0; i < rounds(); i++) {
        AcquireSRWLockExclusive(&lock);
        guarded_by_lock++;
        its_twin++;
        ReleaseSRWLockExclusive(&lock);
        if (i % 3 == 0) {
            AcquireSRWLockShared(&lock);
            CHECK_IS(guarded_by_lock, its_twin);
            ReleaseSRWLockShared(&lock);
        }
        EnterCriticalSection(&section);
        EnterCriticalSection(&section); /* the same thread may */
        guarded_by_section++;
        LeaveCriticalSection(&section);
        LeaveCriticalSection(&section);
        InterlockedIncrement(&added);
        InterlockedExchangeAdd64(&added_wide, 3);
    }
    return 0;
}

static void join_all(HANDLE *threads)
{
    int i;
    CHECK_IS(WaitForMultipleObjects(THREADS, threads, TRUE, INFINITE), WAIT_OBJECT_0);
    for (i = 0; i < THREADS; i++) {
        CHECK_IS(CloseHandle(threads[i]), TRUE);
    }
}

static void locks_exclude(void)
{
    HANDLE threads[THREADS];
    int i;
    InitializeCriticalSection(&section);
    for (i = 0; i < THREADS; i++) {
        threads[i] = new_thread(counts, NULL, NULL);
    }
    join_all(threads);
    CHECK_IS(guarded_by_lock, THREADS * rounds());
    CHECK_IS(its_twin, THREADS * rounds());
    CHECK_IS(guarded_by_section, THREADS * rounds());
    CHECK_IS(added, THREADS * rounds());
    CHECK_IS(added_wide, 3 * THREADS * rounds());

    AcquireSRWLockShared(&lock);
    CHECK(TryAcquireSRWLockShared(&lock));
    CHECK(!TryAcquireSRWLockExclusive(&lock));
    ReleaseSRWLockShared(&lock);
    ReleaseSRWLockShared(&lock);
    CHECK(TryAcquireSRWLockExclusive(&lock));
    CHECK(!TryAcquireSRWLockShared(&lock));
    CHECK(!TryAcquireSRWLockExclusive(&lock));
    ReleaseSRWLockExclusive(&lock);
    CHECK(TryEnterCriticalSection(&section));
    CHECK(TryEnterCriticalSection(&section));
    LeaveCriticalSection(&section);
    LeaveCriticalSection(&section);
    DeleteCriticalSection(&section);
}

static CONDITION_VARIABLE changed = RTL_CONDITION_VARIABLE_INIT;
static int turn;

static DWORD WINAPI takes_turns(LPVOID which)
{
    int mine = (int)(ULONG_PTR)which, i;
    for (i = 0; i < rounds() / 40; i++) {
        AcquireSRWLockExclusive(&lock);
        while (turn % THREADS != mine) {
            CHECK(SleepConditionVariableSRW(&changed, &lock, INFINITE, 0));
        }
        turn++;
        ReleaseSRWLockExclusive(&lock);
        WakeAllConditionVariable(&changed);
    }
    return 0;
}

static void condition_variables_wake(void)
{
    HANDLE threads[THREADS];
    CONDITION_VARIABLE never;
    int i;
#ifndef _WIN32
    changed.wakes = UINT32_MAX - 20; /* its counter wraps on the way */
#endif
    for (i = 0; i < THREADS; i++) {
        threads[i] = new_thread(takes_turns, (void *)(ULONG_PTR)i, NULL);
    }
    join_all(threads);
    CHECK_IS(turn, THREADS * (rounds() / 40));
    InitializeConditionVariable(&never);
    InitializeCriticalSection(&section);
    EnterCriticalSection(&section);
    CHECK_FALSE(SleepConditionVariableCS(&never, &section, A_WHILE), ERROR_TIMEOUT);
    LeaveCriticalSection(&section);
    WakeConditionVariable(&never);
    DeleteCriticalSection(&section);
}

/* ---- clocks and atomic operations ---------------------------------------------------------------------- */

static void clocks_go_on(void)
{
    LARGE_INTEGER frequency, before, after;
    ULONGLONG ticks = GetTickCount64();
    CHECK_IS(QueryPerformanceFrequency(&frequency), TRUE);
    CHECK(frequency.QuadPart >= 1000000);
    CHECK_IS(QueryPerformanceCounter(&before), TRUE);
    Sleep(0);
    Sleep(25);
    CHECK_IS(QueryPerformanceCounter(&after), TRUE);
    CHECK((after.QuadPart - before.QuadPart) * 1000 / frequency.QuadPart >= 25);
    CHECK(GetTickCount64() - ticks >= 25);
    SwitchToThread();
}

/* In memory that held something else before. */
static void locks_are_made_by_calls_too(void)
{
    SRWLOCK own;
    CRITICAL_SECTION sections[2];
    int i;
    memset(&own, 0xFF, sizeof own);
    memset(sections, 0xFF, sizeof sections);
    InitializeSRWLock(&own);
    CHECK(TryAcquireSRWLockExclusive(&own));
    CHECK(!TryAcquireSRWLockShared(&own));
    ReleaseSRWLockExclusive(&own);
    CHECK_IS(InitializeCriticalSectionAndSpinCount(&sections[0], 4000), TRUE);
    CHECK_IS(InitializeCriticalSectionEx(&sections[1], 4000, 0), TRUE);
    for (i = 0; i < 2; i++) {
        CHECK(TryEnterCriticalSection(&sections[i]));
        EnterCriticalSection(&sections[i]);
        LeaveCriticalSection(&sections[i]);
        LeaveCriticalSection(&sections[i]);
        DeleteCriticalSection(&sections[i]);
    }
}

/* Each memory order gives the same results as the full one. */
#define CHECK_ORDER(order)                                                                                \
    do {                                                                                                  \
        volatile LONG word = 5;                                                                           \
        volatile LONG64 wide = (LONG64)5 << 40;                                                           \
        PVOID volatile place = NULL;                                                                      \
        CHECK_IS(InterlockedIncrement##order(&word), 6);                                                  \
        CHECK_IS(InterlockedDecrement##order(&word), 5);                                                  \
        CHECK_IS(InterlockedExchangeAdd##order(&word, 10), 5);                                            \
        CHECK_IS(InterlockedAdd##order(&word, 1), 16);                                                    \
        CHECK_IS(InterlockedExchange##order(&word, 12), 16);                                              \
        CHECK_IS(InterlockedAnd##order(&word, 10), 12);                                                   \
        CHECK_IS(InterlockedOr##order(&word, 1), 8);                                                      \
        CHECK_IS(InterlockedXor##order(&word, 3), 9);                                                     \
        CHECK_IS(InterlockedCompareExchange##order(&word, 100, 11), 10);                                  \
        CHECK_IS(word, 10);                                                                               \
        CHECK_IS(InterlockedCompareExchange##order(&word, 100, 10), 10);                                  \
        CHECK_IS(word, 100);                                                                              \
        CHECK_IS(InterlockedIncrement##order##64(&wide), ((LONG64)5 << 40) + 1);                          \
        CHECK_IS(InterlockedDecrement##order##64(&wide), (LONG64)5 << 40);                                \
        CHECK_IS(InterlockedExchangeAdd##order##64(&wide, (LONG64)1 << 40), (LONG64)5 << 40);             \
        CHECK_IS(InterlockedAdd##order##64(&wide, (LONG64)6 << 40), (LONG64)12 << 40);                    \
        CHECK_IS(InterlockedAnd64##order(&wide, (LONG64)10 << 40), (LONG64)12 << 40);                     \
        CHECK_IS(InterlockedOr64##order(&wide, (LONG64)1 << 40), (LONG64)8 << 40);                        \
        CHECK_IS(InterlockedXor64##order(&wide, (LONG64)3 << 40), (LONG64)9 << 40);                       \
        CHECK_IS(InterlockedCompareExchange##order##64(&wide, 0, 11), (LONG64)10 << 40);                  \
        CHECK_IS(InterlockedCompareExchange##order##64(&wide, 7, (LONG64)10 << 40), (LONG64)10 << 40);    \
        CHECK_IS(InterlockedExchange##order##64(&wide, 1), 7);                                            \
        CHECK(InterlockedExchangePointer##order(&place, (PVOID)&word) == NULL);                           \
        CHECK(InterlockedCompareExchangePointer##order(&place, NULL, (PVOID)&wide) == (PVOID)&word);      \
        CHECK(InterlockedCompareExchangePointer##order(&place, NULL, (PVOID)&word) == (PVOID)&word);      \
        CHECK(place == NULL);                                                                             \
    } while (0)

static void atomic_operations_return_what_they_return(void)
{
    volatile LONG word = 0x7FFFFFFF;
    CHECK_ORDER();
    CHECK_ORDER(Acquire);
    CHECK_ORDER(Release);
    CHECK_ORDER(NoFence);
    MemoryBarrier();
    CHECK_IS(InterlockedIncrement(&word), (LONG)0x80000000);
}

/* ---- lists --------------------------------------------------------------------------------------------- */

/* An entry that is part of the program's own memory. */
typedef struct Listed {
    SLIST_ENTRY entry;
    volatile LONG is_taken;
} Listed;

static SLIST_HEADER list;

static DWORD WINAPI pops_and_pushes(LPVOID unused)
{
    int i;
    (void)unused;
    for (i = 0; i < rounds(); i++) {
        Listed *listed = (Listed *)(void *)InterlockedPopEntrySList(&list);
        if (listed == NULL)
            continue;
        CHECK_IS(InterlockedExchange(&listed->is_taken, 1), 0); /* no other thread took it */
        listed->entry.Next = NULL;
        InterlockedExchange(&listed->is_taken, 0);
        InterlockedPushEntrySList(&list, &listed->entry);
    }
    return 0;
}

static void an_entry_is_popped_once(void)
{
    static Listed listed[3];
    HANDLE threads[THREADS];
    PSLIST_ENTRY entry;
    int i;
    memset(&list, 0xFF, sizeof list);
    InitializeSListHead(&list);
    CHECK_IS((uintptr_t)&list % MEMORY_ALLOCATION_ALIGNMENT + (uintptr_t)&listed[1] % MEMORY_ALLOCATION_ALIGNMENT, 0);
    CHECK(InterlockedPopEntrySList(&list) == NULL);
    CHECK(InterlockedFlushSList(&list) == NULL);
    CHECK(InterlockedPushEntrySList(&list, &listed[0].entry) == NULL);
    CHECK(InterlockedPushEntrySList(&list, &listed[1].entry) == &listed[0].entry);
    CHECK_IS(QueryDepthSList(&list), 2);
    CHECK(InterlockedPopEntrySList(&list) == &listed[1].entry);
    CHECK(InterlockedPushEntrySList(&list, &listed[1].entry) == &listed[0].entry);
    CHECK(InterlockedPushEntrySList(&list, &listed[2].entry) == &listed[1].entry);
    for (i = 0; i < THREADS; i++)
        threads[i] = new_thread(pops_and_pushes, NULL, NULL);
    join_all(threads);
    CHECK_IS(QueryDepthSList(&list), 3);
    entry = InterlockedFlushSList(&list);
    for (i = 0; i < 3; i++) {
        CHECK(entry != NULL);
        entry = entry->Next;
    }
    CHECK(entry == NULL);
    CHECK_IS(QueryDepthSList(&list), 0);
    /* Pushes several entries that are already linked. */
    listed[0].entry.Next = &listed[1].entry;
    CHECK(InterlockedPushEntrySList(&list, &listed[2].entry) == NULL);
    CHECK(InterlockedPushListSListEx(&list, &listed[0].entry, &listed[1].entry, 2) == &listed[2].entry);
    CHECK_IS(QueryDepthSList(&list), 3);
    for (i = 0; i < 3; i++)
        CHECK(InterlockedPopEntrySList(&list) == &listed[i].entry);
    CHECK_IS(QueryDepthSList(&list), 0);
}

int main(void)
{
    start();
    threads_run_and_are_waited_for();
    handles_of_one_kind_are_no_others();
    the_lowest_bits_of_a_handle_are_the_programs_own();
    ports_are_signalled_while_packets_are_queued();
    events_are_set_and_reset();
    events_are_made_by_flags_too();
    locks_are_made_by_calls_too();
    locks_exclude();
    condition_variables_wake();
    clocks_go_on();
    atomic_operations_return_what_they_return();
    an_entry_is_popped_once();
    return finish();
}
