/* BindIoCompletionCallback, CreateThreadpoolIo, QueueUserWorkItem, CreateThreadpoolWork: calls by threads of the
 * library, when operations end or at the program's request. */
#include <winsock2.h>
#include <mswsock.h>

#include <pthread.h>
#include <signal.h>

#ifndef _WIN32
#include <sys/wait.h>
#endif

#include "check.h"
#include "overlapped.h"

#ifndef _WIN32
#include "filters.h"
#endif

/* The data of each operation after its OVERLAPPED. */
typedef struct Call {
    OVERLAPPED overlapped;
    char byte;
    DWORD code, bytes, thread;
    void *context;
    HANDLE done;
} Call;

static Call new_call(void)
{
    Call call;
    memset(&call, 0, sizeof call);
    call.overlapped = fresh(NULL);
    call.code = UNTOUCHED;
    call.done = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK(call.done != NULL);
    return call;
}

static void until_called(Call *call)
{
    CHECK_IS(WaitForSingleObject(call->done, SOON), WAIT_OBJECT_0);
    CHECK(CloseHandle(call->done));
    CHECK(call->thread != GetCurrentThreadId());
}

static void CALLBACK routine(DWORD code, DWORD bytes, LPOVERLAPPED overlapped)
{
    Call *call = CONTAINING_RECORD(overlapped, Call, overlapped);
    call->code = code;
    call->bytes = bytes;
    call->thread = GetCurrentThreadId();
    CHECK(SetEvent(call->done));
}

static void a_routine_is_called_at_each_end(void)
{
    SOCKET near, far;
    Call received = new_call(), sent = new_call(), cancelled = new_call();
    tcp_pair(&near, &far);
#if HAS_SOCKET_CALLS
    CHECK_FALSE(BindIoCompletionCallback((HANDLE)near, NULL, 0), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(BindIoCompletionCallback((HANDLE)near, routine, 1), ERROR_INVALID_PARAMETER);
#endif
    CHECK_FALSE(BindIoCompletionCallback(INVALID_HANDLE_VALUE, routine, 0), ERROR_INVALID_HANDLE);
    CHECK(BindIoCompletionCallback((HANDLE)near, routine, 0));
    CHECK_FALSE(BindIoCompletionCallback((HANDLE)near, routine, 0), ERROR_INVALID_PARAMETER);
    CHECK(BindIoCompletionCallback((HANDLE)far, routine, 0));
    CHECK_PENDING(receive_into(near, &received.byte, 1, NULL, &received.overlapped));
    CHECK_IS(send_from(far, "x", 1, NULL, &sent.overlapped), 0);
    until_called(&received);
    CHECK_IS(received.code, ERROR_SUCCESS);
    CHECK_IS(received.bytes, 1);
    CHECK_IS(received.byte, 'x');
    until_called(&sent);
    CHECK_IS(sent.bytes, 1);
    CHECK_PENDING(receive_into(near, &cancelled.byte, 1, NULL, &cancelled.overlapped));
    CHECK(CancelIoEx((HANDLE)near, &cancelled.overlapped));
    until_called(&cancelled);
    CHECK_IS(cancelled.code, ERROR_OPERATION_ABORTED);
    close_both(near, far);
}

static void CALLBACK io_callback(PTP_CALLBACK_INSTANCE instance, PVOID context, PVOID overlapped, ULONG code,
                                 ULONG_PTR bytes, PTP_IO io)
{
    Call *call = CONTAINING_RECORD(overlapped, Call, overlapped);
    CHECK((instance == NULL) == HAS_SOCKET_CALLS && io != NULL);
    call->code = code;
    call->bytes = (DWORD)bytes;
    call->context = context;
    call->thread = GetCurrentThreadId();
    CHECK(SetEvent(call->done));
}

static void a_pool_io_calls_with_its_context(void)
{
    SOCKET near, far;
    Call call = new_call(), last = new_call();
    PTP_IO io;
    int context = 0;
    tcp_pair(&near, &far);
#if HAS_SOCKET_CALLS
    SetLastError(0);
    CHECK(CreateThreadpoolIo((HANDLE)near, NULL, &context, NULL) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK(CreateThreadpoolIo((HANDLE)near, io_callback, NULL, (PTP_CALLBACK_ENVIRON)(void *)&context) == NULL);
    CHECK_IS(GetLastError(), ERROR_NOT_SUPPORTED);
    CHECK(CreateThreadpoolIo(INVALID_HANDLE_VALUE, io_callback, NULL, NULL) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
#endif
    io = CreateThreadpoolIo((HANDLE)near, io_callback, &context, NULL);
    CHECK(io != NULL);
    SetLastError(0);
    CHECK(CreateThreadpoolIo((HANDLE)near, io_callback, &context, NULL) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(BindIoCompletionCallback((HANDLE)near, routine, 0), ERROR_INVALID_PARAMETER);
    StartThreadpoolIo(io);
    CHECK_PENDING(receive_into(near, &call.byte, 1, NULL, &call.overlapped));
    send_all(far, "x", 1);
    until_called(&call);
    CHECK(call.context == &context);
    CHECK_IS(call.code, ERROR_SUCCESS);
    CHECK_IS(call.bytes, 1);
    WaitForThreadpoolIoCallbacks(io, FALSE);
    /* An operation that is not started. */
    StartThreadpoolIo(io);
    CHECK_SOCKET_ERROR(receive_into(INVALID_SOCKET, &last.byte, 1, NULL, &last.overlapped), WSAENOTSOCK);
    CancelThreadpoolIo(io);
    WaitForThreadpoolIoCallbacks(io, TRUE);
    /* It is closed with an operation in flight, and goes when that has ended. */
    StartThreadpoolIo(io);
    CHECK_PENDING(receive_into(near, &last.byte, 1, NULL, &last.overlapped));
    CloseThreadpoolIo(io);
    CHECK_IS(closesocket(near), 0);
    until_called(&last);
    CHECK_IS(last.code, closed_code());
    closesocket(far);
}

/* ---- calls that wait for each other -------------------------------------------------------------------- */

/* More calls than the pool has threads at first, which depends on the number of processors. All others wait for the
 * last one. */
enum { MOST_CALLS = 1024 };
static LONG calls;
static HANDLE last_has_come, all_are_done;
static volatile LONG calls_to_come, calls_done;

static void wait_for_the_last(void)
{
    if (InterlockedDecrement(&calls_to_come) == 0)
        CHECK(SetEvent(last_has_come));
    CHECK_IS(WaitForSingleObject(last_has_come, SOON), WAIT_OBJECT_0);
    if (InterlockedIncrement(&calls_done) == calls)
        CHECK(SetEvent(all_are_done));
}

static DWORD WINAPI waiting_work(LPVOID context)
{
    CHECK(context == &calls_done);
    wait_for_the_last();
    return 0;
}

static void CALLBACK waiting_routine(DWORD code, DWORD bytes, LPOVERLAPPED overlapped)
{
    (void)overlapped;
    CHECK_IS(code, ERROR_SUCCESS);
    CHECK_IS(bytes, 1);
    wait_for_the_last();
}

static void CALLBACK waiting_io(PTP_CALLBACK_INSTANCE instance, PVOID context, PVOID overlapped, ULONG code,
                                ULONG_PTR bytes, PTP_IO io)
{
    (void)instance;
    (void)io;
    CHECK(context == &calls_done);
    waiting_routine(code, (DWORD)bytes, (LPOVERLAPPED)overlapped);
}

static void expect_calls(void)
{
    last_has_come = CreateEventA(NULL, TRUE, FALSE, NULL);
    all_are_done = CreateEventA(NULL, TRUE, FALSE, NULL);
    calls_to_come = calls;
    calls_done = 0;
}

static void until_all_are_done(void)
{
    CHECK_IS(WaitForSingleObject(all_are_done, SOON), WAIT_OBJECT_0);
    CHECK(CloseHandle(last_has_come));
    CHECK(CloseHandle(all_are_done));
}

static void calls_wait_for_later_ones(int with_io)
{
    static OVERLAPPED sends[MOST_CALLS];
    SOCKET near, far;
    PTP_IO io = NULL;
    int i;
    tcp_pair(&near, &far);
    expect_calls();
    if (with_io)
        CHECK((io = CreateThreadpoolIo((HANDLE)near, waiting_io, (PVOID)&calls_done, NULL)) != NULL);
    else
        CHECK(BindIoCompletionCallback((HANDLE)near, waiting_routine, 0));
    for (i = 0; i < calls; i++) {
        sends[i] = fresh(NULL);
        if (io)
            StartThreadpoolIo(io);
        CHECK_IS(send_from(near, "x", 1, NULL, &sends[i]), 0);
    }
    until_all_are_done();
    if (io) {
        WaitForThreadpoolIoCallbacks(io, FALSE);
        CloseThreadpoolIo(io);
    }
    close_both(near, far);
}

static void calls_at_ends_may_wait_for_later_ones(void)
{
    UNLESS_WINE("ends of operations are told of by too few threads") {
        calls_wait_for_later_ones(FALSE);
        calls_wait_for_later_ones(TRUE);
    }
}

static DWORD WINAPI quick_work(LPVOID context)
{
    if (InterlockedIncrement((volatile LONG *)context) == 10 * calls)
        CHECK(SetEvent(all_are_done));
    return 0;
}

#ifndef _WIN32
/* The number of threads in the pool. */
static int threads_of_the_pool(void)
{
    DIR *threads = opendir("/proc/self/task");
    const struct dirent *thread;
    int count = 0;
    CHECK(threads != NULL);
    while ((thread = readdir(threads)) != NULL) {
        char path[sizeof thread->d_name + 32], name[32] = "";
        FILE *file;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread->d_name);
        file = fopen(path, "r");
        if (file == NULL)
            continue;
        count += fgets(name, sizeof name, file) != NULL && strcmp(name, "cp-pool\n") == 0;
        CHECK_IS(fclose(file), 0);
    }
    CHECK_IS(closedir(threads), 0);
    return count;
}
#endif

static void work_is_done_by_the_pool(void)
{
    ULONG flags = WT_EXECUTELONGFUNCTION;
    int i;
#if HAS_SOCKET_CALLS
    CHECK_FALSE(QueueUserWorkItem(NULL, NULL, 0), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(QueueUserWorkItem(quick_work, NULL, 0x8000), ERROR_INVALID_PARAMETER);
#endif
    expect_calls();
    WT_SET_MAX_THREADPOOL_THREADS(flags, 500);
    for (i = 0; i < calls; i++)
        CHECK(QueueUserWorkItem(waiting_work, (PVOID)&calls_done, i % 2 ? flags : WT_EXECUTEDEFAULT));
    until_all_are_done();
    /* The existing threads make the next calls. */
    expect_calls();
    for (i = 0; i < 10 * calls; i++)
        CHECK(QueueUserWorkItem(quick_work, (PVOID)&calls_done, 0));
    until_all_are_done();
#ifndef _WIN32
    CHECK(threads_of_the_pool() < 5 * calls);
#endif
}

static void CALLBACK waiting_work_of_its_own(PTP_CALLBACK_INSTANCE instance, PVOID context, PTP_WORK work)
{
    CHECK((instance == NULL) == HAS_SOCKET_CALLS && work != NULL);
    CHECK(context == &calls_done);
    wait_for_the_last();
}

static void CALLBACK waiting_simple_call(PTP_CALLBACK_INSTANCE instance, PVOID context)
{
    CHECK((instance == NULL) == HAS_SOCKET_CALLS && context == &calls_done);
    wait_for_the_last();
}

static volatile LONG begun;

/* Occupies all running threads until it may return, so that later calls do not begin. */
static void CALLBACK stays_a_while(PTP_CALLBACK_INSTANCE instance, PVOID context, PTP_WORK work)
{
    (void)instance;
    (void)context;
    (void)work;
    InterlockedIncrement(&begun);
    CHECK_IS(WaitForSingleObject(last_has_come, SOON), WAIT_OBJECT_0);
    InterlockedIncrement(&calls_done);
}

static void work_is_submitted_and_waited_for(void)
{
    PTP_WORK work = CreateThreadpoolWork(waiting_work_of_its_own, (PVOID)&calls_done, NULL);
    int i;
    CHECK(work != NULL);
    expect_calls();
    for (i = 0; i < calls / 2; i++) {
        SubmitThreadpoolWork(work);
        CHECK(TrySubmitThreadpoolCallback(waiting_simple_call, (PVOID)&calls_done, NULL));
    }
    WaitForThreadpoolWorkCallbacks(work, FALSE);
    CHECK(calls_done >= calls / 2);
    until_all_are_done();
    WaitForThreadpoolWorkCallbacks(work, TRUE); /* none is left */
    expect_calls();
    for (i = 0; i < calls; i++)
        SubmitThreadpoolWork(work);
    CloseThreadpoolWork(work); /* freed when its calls have returned */
    until_all_are_done();
    /* A cancelled call is not made. The wait includes a call that has begun. */
    expect_calls();
    begun = 0;
    work = CreateThreadpoolWork(stays_a_while, NULL, NULL);
    CHECK(work != NULL);
    SubmitThreadpoolWork(work);
    while (begun == 0)
        Sleep(1);
    CHECK(SetEvent(last_has_come));
    for (i = 0; i < 10 * calls; i++)
        SubmitThreadpoolWork(work);
    WaitForThreadpoolWorkCallbacks(work, TRUE);
    CHECK_IS(begun, calls_done);
    CHECK(begun >= 1 && begun <= 10 * calls + 1);
    i = begun;
    WaitForThreadpoolWorkCallbacks(work, FALSE);
    CHECK_IS(begun, i);
    CloseThreadpoolWork(work);
    CHECK(CloseHandle(last_has_come) && CloseHandle(all_are_done));
#if HAS_SOCKET_CALLS
    SetLastError(0);
    CHECK(CreateThreadpoolWork(NULL, NULL, NULL) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(TrySubmitThreadpoolCallback(NULL, NULL, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(TrySubmitThreadpoolCallback(waiting_simple_call, NULL, (PTP_CALLBACK_ENVIRON)(void *)&i),
                ERROR_NOT_SUPPORTED);
    CHECK(CreateThreadpoolWork(stays_a_while, NULL, (PTP_CALLBACK_ENVIRON)(void *)&i) == NULL);
#endif
}

#if HAS_SOCKET_CALLS /* Windows takes an unannounced operation for the end of an announced one. */
/* The routine is called when operations in flight end. A pool io object serves announced operations only. */
static void what_is_in_flight_calls_a_routine(void)
{
    SOCKET near, far;
    Call call = new_call(), none = new_call(), announced = new_call();
    PTP_IO io;
    DWORD count;
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &call.byte, 1, NULL, &call.overlapped));
    CHECK(BindIoCompletionCallback((HANDLE)near, routine, 0));
    send_all(far, "x", 1);
    until_called(&call);
    CHECK_IS(call.bytes, 1);
    close_both(near, far);
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &none.byte, 1, NULL, &none.overlapped));
    io = CreateThreadpoolIo((HANDLE)near, io_callback, NULL, NULL);
    CHECK(io != NULL);
    StartThreadpoolIo(io);
    CHECK_PENDING(receive_into(near, &announced.byte, 1, NULL, &announced.overlapped));
    send_all(far, "xy", 2);
    until_called(&announced);
    CHECK(GetOverlappedResult((HANDLE)near, &none.overlapped, &count, FALSE));
    CHECK_IS(WaitForSingleObject(none.done, 0), WAIT_TIMEOUT);
    WaitForThreadpoolIoCallbacks(io, FALSE);
    CloseThreadpoolIo(io);
    close_both(near, far);
    CHECK(CloseHandle(none.done));
}
#endif

/* FILE_SKIP_COMPLETION_PORT_ON_SUCCESS: an immediate success makes no callback, and the program
 * takes its announcement back. Operations that continue still make callbacks. */
static void a_success_of_which_no_packet_tells_is_taken_back(void)
{
    SOCKET near, far;
    Call spared = new_call(), called = new_call();
    DWORD received = UNTOUCHED;
    PTP_IO io;
    int round;
    tcp_pair(&near, &far);
    io = CreateThreadpoolIo((HANDLE)near, io_callback, NULL, NULL);
    CHECK(io != NULL);
    CHECK(SetFileCompletionNotificationModes((HANDLE)near, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS));
    for (round = 0; round < 3; round++) {
        send_all(far, "x", 1);
        until(near, POLLIN);
        StartThreadpoolIo(io);
        CHECK_IS(receive_into(near, &spared.byte, 1, &received, &spared.overlapped), 0);
        CHECK_IS(received, 1);
        CancelThreadpoolIo(io);
    }
    /* None is missing for which the wait would be. */
#if HAS_SOCKET_CALLS
    waits_for_none(io, FALSE);
#else
    WaitForThreadpoolIoCallbacks(io, FALSE);
#endif
    CHECK_IS(WaitForSingleObject(spared.done, A_WHILE), WAIT_TIMEOUT);
    StartThreadpoolIo(io);
    CHECK_PENDING(receive_into(near, &called.byte, 1, NULL, &called.overlapped));
    send_all(far, "y", 1);
    until_called(&called);
    CHECK_IS(called.code, ERROR_SUCCESS);
    CHECK_IS(called.byte, 'y');
    WaitForThreadpoolIoCallbacks(io, FALSE);
    CHECK_IS(WaitForSingleObject(spared.done, 0), WAIT_TIMEOUT);
    CloseThreadpoolIo(io);
    CHECK(CloseHandle(spared.done));
    close_both(near, far);
}

#ifndef _WIN32
typedef struct Slow {
    HANDLE goes_on, has_begun;
    volatile LONG has_returned;
} Slow;

static void CALLBACK slow_callback(PTP_CALLBACK_INSTANCE instance, PVOID context, PVOID overlapped, ULONG code,
                                   ULONG_PTR bytes, PTP_IO io)
{
    Slow *slow = (Slow *)context;
    (void)instance;
    (void)overlapped;
    (void)code;
    (void)bytes;
    (void)io;
    CHECK(SetEvent(slow->has_begun));
    CHECK_IS(WaitForSingleObject(slow->goes_on, SOON), WAIT_OBJECT_0);
    Sleep(A_WHILE);
    InterlockedIncrement(&slow->has_returned);
}

static DWORD WINAPI let_it_go_on(LPVOID argument)
{
    Sleep(A_WHILE);
    CHECK(SetEvent((HANDLE)argument));
    return 0;
}

/* Waits for callbacks that are due or running, and not for an operation in flight. */
static void a_wait_for_calls_is_none_for_operations(void)
{
    SOCKET near, far;
    OVERLAPPED idle = fresh(NULL), done = fresh(NULL);
    Slow slow;
    PTP_IO io;
    HANDLE thread;
    char bytes[2];
    int round;
    slow.goes_on = CreateEventA(NULL, FALSE, FALSE, NULL);
    slow.has_begun = CreateEventA(NULL, FALSE, FALSE, NULL);
    slow.has_returned = 0;
    tcp_pair(&near, &far);
    io = CreateThreadpoolIo((HANDLE)near, slow_callback, &slow, NULL);
    CHECK(io != NULL);
    StartThreadpoolIo(io);
    CHECK_PENDING(receive_into(near, bytes, 1, NULL, &idle));
    for (round = 0; round < 10; round++)
        waits_for_none(io, round % 2 != 0);
    CHECK_IS(slow.has_returned, 0);
    /* Another one has ended. */
    StartThreadpoolIo(io);
    CHECK_IS(send_from(near, "x", 1, NULL, &done), 0);
    thread = CreateThread(NULL, 0, let_it_go_on, slow.goes_on, 0, NULL);
    WaitForThreadpoolIoCallbacks(io, FALSE);
    CHECK_IS(slow.has_returned, 1);
    CHECK_IS(WaitForSingleObject(slow.has_begun, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    CHECK(CloseHandle(thread));
    /* Like programs that are about to free memory that the callbacks use. */
    CHECK(SetEvent(slow.goes_on));
    CHECK_IS(closesocket(near), 0);
    WaitForThreadpoolIoCallbacks(io, TRUE);
    CHECK_IS(slow.has_returned, 2);
    CloseThreadpoolIo(io);
    closesocket(far);
    CHECK(CloseHandle(slow.goes_on));
    CHECK(CloseHandle(slow.has_begun));
}

/* The wait includes the callbacks of cancelled and closed operations. */
static void a_wait_is_one_for_what_was_cancelled(void)
{
    int round, rounds = is_slow() ? 9 : tries(30, 60);
    for (round = 0; round < rounds; round++) {
        SOCKET near, far;
        OVERLAPPED overlapped = fresh(NULL);
        Slow slow;
        PTP_IO io;
        char byte;
        slow.goes_on = CreateEventA(NULL, TRUE, TRUE, NULL);
        slow.has_begun = CreateEventA(NULL, TRUE, FALSE, NULL);
        slow.has_returned = 0;
        tcp_pair(&near, &far);
        io = CreateThreadpoolIo((HANDLE)near, slow_callback, &slow, NULL);
        CHECK(io != NULL);
        StartThreadpoolIo(io);
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        if (round % 3 == 0)
            CHECK(CancelIoEx((HANDLE)near, &overlapped));
        else if (round % 3 == 1)
            CHECK_IS(closesocket(near), 0);
        else
            send_all(far, "x", 1);
        if (round % 3 == 2)
            CHECK_IS(WaitForSingleObject(slow.has_begun, SOON), WAIT_OBJECT_0);
        WaitForThreadpoolIoCallbacks(io, TRUE);
        CHECK_IS(slow.has_returned, 1);
        CloseThreadpoolIo(io);
        if (round % 3 != 1)
            closesocket(near);
        closesocket(far);
        CHECK(CloseHandle(slow.goes_on));
        CHECK(CloseHandle(slow.has_begun));
    }
}

/* An operation that was announced but neither started nor taken back is awaited, but not forever. */
static void what_was_announced_alone_is_waited_for_a_second(void)
{
    SOCKET s = udp_socket();
    ULONGLONG began;
    PTP_IO io = CreateThreadpoolIo((HANDLE)s, io_callback, NULL, NULL);
    CHECK(io != NULL);
    StartThreadpoolIo(io);
    began = GetTickCount64();
    WaitForThreadpoolIoCallbacks(io, FALSE);
    CHECK(GetTickCount64() - began >= 990);
    CancelThreadpoolIo(io);
    CloseThreadpoolIo(io);
    CHECK_IS(closesocket(s), 0);
}

static int open_descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    int count = 0;
    CHECK(all != NULL);
    while (readdir(all) != NULL)
        count++;
    closedir(all);
    return count;
}

static void without_threads_nothing_is_left(void)
{
    pid_t child = fork_at_rest();
    int status;
    if (child == 0) {
        SOCKET s = udp_socket();
        int before;
        if (!refuse_calls(SYS_clone, SYS_clone3, EAGAIN)) {
            printf("SKIPPED calls without threads: the system does not refuse any here\n");
            fflush(stdout);
            _exit(0);
        }
        CHECK_FALSE(BindIoCompletionCallback((HANDLE)s, routine, 0), ERROR_NO_SYSTEM_RESOURCES);
        before = open_descriptors();
        CHECK_FALSE(BindIoCompletionCallback((HANDLE)s, routine, 0), ERROR_NO_SYSTEM_RESOURCES);
        CHECK(CreateThreadpoolIo((HANDLE)s, io_callback, NULL, NULL) == NULL);
        CHECK_IS(open_descriptors(), before);
        _exit(0);
    }
    CHECK_IS(waitpid(child, &status, 0), child);
    CHECK_IS(status, 0);
}

static volatile sig_atomic_t signals;

static void count_signal(int signal)
{
    (void)signal;
    signals++;
}

/* A signal for the process waits until a thread of the program takes it: those of the library handle none. */
static void signals_are_left_to_the_threads_of_the_program(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED;
    struct sigaction action;
    sigset_t one, waiting;
    memset(&action, 0, sizeof action);
    action.sa_handler = count_signal;
    CHECK_IS(sigaction(SIGUSR1, &action, NULL), 0);
    /* The driver runs, and the pool does since the first of these tests. */
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK_IS(pthread_sigmask(SIG_BLOCK, &one, NULL), 0);
    CHECK_IS(kill(getpid(), SIGUSR1), 0);
    Sleep(A_WHILE);
    CHECK_IS(signals, 0);
    CHECK_IS(sigpending(&waiting), 0);
    CHECK_IS(sigismember(&waiting, SIGUSR1), 1);
    CHECK_IS(pthread_sigmask(SIG_UNBLOCK, &one, NULL), 0);
    CHECK_IS(signals, 1);
    send_all(far, "x", 1);
    CHECK(GetOverlappedResult((HANDLE)near, &overlapped, &count, TRUE));
    close_both(near, far);
}

#endif

int main(void)
{
    SYSTEM_INFO machine;
    GetSystemInfo(&machine);
    calls = (LONG)machine.dwNumberOfProcessors * 2 + 8;
    calls = calls < MOST_CALLS ? calls : MOST_CALLS;
    start();
#ifndef _WIN32
    without_threads_nothing_is_left();
#endif
    a_routine_is_called_at_each_end();
    a_pool_io_calls_with_its_context();
    calls_at_ends_may_wait_for_later_ones();
    work_is_done_by_the_pool();
    work_is_submitted_and_waited_for();
#if HAS_SOCKET_CALLS
    what_is_in_flight_calls_a_routine();
#endif
    a_success_of_which_no_packet_tells_is_taken_back();
#ifndef _WIN32
    what_was_announced_alone_is_waited_for_a_second();
    a_wait_for_calls_is_none_for_operations();
    a_wait_is_one_for_what_was_cancelled();
    signals_are_left_to_the_threads_of_the_program();
#endif
    return finish();
}
