/* BindIoCompletionCallback and CreateThreadpoolIo: the ends of operations are calls in threads of the library. */
#include <winsock2.h>
#include <mswsock.h>

#include <pthread.h>
#include <signal.h>

#include "check.h"
#include "overlapped.h"

/* What each operation has beside its OVERLAPPED. */
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
    StartThreadpoolIo(io);
    CHECK_PENDING(receive_into(near, &call.byte, 1, NULL, &call.overlapped));
    send_all(far, "x", 1);
    until_called(&call);
    CHECK(call.context == &context);
    CHECK_IS(call.code, ERROR_SUCCESS);
    CHECK_IS(call.bytes, 1);
    WaitForThreadpoolIoCallbacks(io, FALSE);
    /* One that is not begun. */
    StartThreadpoolIo(io);
    CHECK_SOCKET_ERROR(WSARecv(near, NULL, 0, NULL, NULL, &last.overlapped, NULL), WSAEFAULT);
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


#ifndef _WIN32
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
    start();
    a_routine_is_called_at_each_end();
    a_pool_io_calls_with_its_context();
#ifndef _WIN32
    signals_are_left_to_the_threads_of_the_program();
#endif
    return finish();
}
