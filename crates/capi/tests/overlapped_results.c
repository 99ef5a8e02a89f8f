/* Detecting the end of an operation without its packet, and without any port: with
 * GetOverlappedResult, an event, or the OVERLAPPED alone. And ways to end operations: CancelIo,
 * CancelIoEx, closesocket, closing the port. */
#include <winsock2.h>
#include <mswsock.h>

#include "check.h"
#include "overlapped.h"

#define KEY 99u

static HANDLE port;

static HANDLE new_event(BOOL stays)
{
    HANDLE event = CreateEventA(NULL, stays, FALSE, NULL);
    CHECK(event != NULL);
    return event;
}

#ifndef _WIN32
/* How many threads the process has; of this name, if one is given. */
static int count_threads(const char *wanted)
{
    DIR *threads = opendir("/proc/self/task");
    const struct dirent *thread;
    int count = 0;
    CHECK(threads != NULL);
    while ((thread = readdir(threads)) != NULL) {
        char path[sizeof thread->d_name + 32], name[32];
        FILE *file;
        if (atol(thread->d_name) <= 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread->d_name);
        file = fopen(path, "r");
        if (file == NULL) /* it has just ended */
            continue;
        if (fgets(name, sizeof name, file) == NULL)
            name[0] = 0;
        CHECK_IS(fclose(file), 0);
        name[strcspn(name, "\n")] = 0;
        count += wanted == NULL || strcmp(name, wanted) == 0;
    }
    CHECK_IS(closedir(threads), 0);
    return count;
}

typedef struct Starter {
    SOCKET near, far;
    HANDLE port, thread; /* the port may be none */
    OVERLAPPED overlapped;
    char byte;
} Starter;

static volatile LONG is_open;

static DWORD WINAPI begins_to_receive(LPVOID argument)
{
    Starter *it = (Starter *)argument;
    while (!is_open)
        SwitchToThread();
    CHECK_PENDING(receive_into(it->near, &it->byte, 1, NULL, &it->overlapped));
    return 0;
}

/* Must run first: the library has no thread before an operation needs it. One thread serves all
 * ports, and the sockets without one, even if several threads start together. */
static void one_thread_sees_to_everything(void)
{
    enum { COUNT = 6 };
    static Starter starters[COUNT];
    HANDLE ports[2];
    OVERLAPPED sending = fresh(NULL);
    int place, before = count_threads(NULL); /* an emulator may have its own thread */
    ports[0] = new_port(1);
    ports[1] = new_port(1);
    for (place = 0; place < COUNT; place++) {
        Starter *it = &starters[place];
        it->port = place < 4 ? ports[place % 2] : NULL;
        it->overlapped = fresh(NULL);
        tcp_pair(&it->near, &it->far);
        if (it->port != NULL)
            associate(it->near, it->port, KEY);
        it->thread = CreateThread(NULL, 0, begins_to_receive, it, 0, NULL);
        CHECK(it->thread != NULL);
    }
    CHECK_IS(send_from(starters[0].near, "x", 1, NULL, &sending), 0);
    CHECK_ENDED(ports[0], KEY, &sending, 1);
    CHECK_IS(count_threads(NULL), before + COUNT);
    CHECK_IS(count_threads("cp-driver"), 0);
    InterlockedExchange(&is_open, 1);
    for (place = 0; place < COUNT; place++) {
        CHECK_IS(WaitForSingleObject(starters[place].thread, SOON), WAIT_OBJECT_0);
        CHECK(CloseHandle(starters[place].thread));
    }
    for (place = 0; place < COUNT; place++) {
        Starter *it = &starters[place];
        send_all(it->far, "x", 1);
        until_ended(&it->overlapped);
        if (it->port != NULL)
            CHECK_ENDED(it->port, KEY, &it->overlapped, 1);
        CHECK_IS(it->byte, 'x');
        close_both(it->near, it->far);
    }
    CHECK_IS(count_threads("cp-driver"), 1);
    CHECK(CloseHandle(ports[0]) && CloseHandle(ports[1]));
}

#endif

static void without_a_port_a_thread_waits_for_the_result(void)
{
    SOCKET near, far;
    char bytes[8];
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED, flags = UNTOUCHED;
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, bytes, sizeof bytes, NULL, &overlapped));
    CHECK_FALSE(WSAGetOverlappedResult(near, &overlapped, &count, FALSE, &flags), WSA_IO_INCOMPLETE);
    CHECK_FALSE(GetOverlappedResult((HANDLE)near, &overlapped, &count, FALSE), ERROR_IO_INCOMPLETE);
    CHECK_FALSE(GetOverlappedResultEx((HANDLE)near, &overlapped, &count, 5, FALSE), WAIT_TIMEOUT);
    CHECK_IS(count, UNTOUCHED);
    send_all(far, "hello", 5);
    CHECK_IS(WSAGetOverlappedResult(near, &overlapped, &count, TRUE, &flags), TRUE);
    CHECK_IS(count, 5);
    UNLESS_WINE("the result of an operation has the offset in its OVERLAPPED as flags")
        CHECK_IS(flags, 0);
    /* It may be asked again. */
    CHECK_IS(GetOverlappedResult((HANDLE)near, &overlapped, &count, TRUE), TRUE);
    CHECK_IS(GetOverlappedResultEx((HANDLE)near, &overlapped, &count, 0, TRUE), TRUE);
    CHECK_IS(count, 5);
    close_both(near, far);
}

static void without_a_port_a_thread_spins(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "x", 1);
    until_ended(&overlapped);
    CHECK_IS((DWORD)overlapped.Internal, SUCCEEDED_WELL);
    CHECK_IS(overlapped.InternalHigh, 1);
    close_both(near, far);
}

static void without_a_port_a_thread_waits_for_events(void)
{
    enum { COUNT = 4 };
    SOCKET near[COUNT], far[COUNT];
    HANDLE events[COUNT];
    OVERLAPPED overlapped[COUNT];
    char bytes[COUNT];
    int place;
    for (place = 0; place < COUNT; place++) {
        tcp_pair(&near[place], &far[place]);
        events[place] = new_event(TRUE);
        /* It is reset when the operation begins. */
        CHECK(SetEvent(events[place]));
        overlapped[place] = fresh(events[place]);
        CHECK_PENDING(receive_into(near[place], &bytes[place], 1, NULL, &overlapped[place]));
        CHECK_IS(WaitForSingleObject(events[place], 0), WAIT_TIMEOUT);
    }
    send_all(far[2], "c", 1);
    CHECK_IS(WaitForMultipleObjects(COUNT, events, FALSE, SOON), WAIT_OBJECT_0 + 2);
    CHECK_IS((DWORD)overlapped[2].Internal, SUCCEEDED_WELL);
    CHECK_IS(bytes[2], 'c');
    for (place = 0; place < COUNT; place++)
        if (place != 2)
            send_all(far[place], "x", 1);
    CHECK_IS(WaitForMultipleObjects(COUNT, events, TRUE, SOON), WAIT_OBJECT_0);
    for (place = 0; place < COUNT; place++) {
        DWORD count = UNTOUCHED;
        CHECK(GetOverlappedResult((HANDLE)near[place], &overlapped[place], &count, FALSE));
        CHECK_IS(count, 1);
        closesocket(near[place]);
        closesocket(far[place]);
        CHECK(CloseHandle(events[place]));
    }
}

static void an_event_is_set_by_what_ends_at_once_and_may_be_closed_meanwhile(void)
{
    SOCKET near, far;
    char byte;
    HANDLE event = new_event(FALSE);
    OVERLAPPED overlapped = fresh(event), other = fresh(event);
    DWORD count = UNTOUCHED;
    tcp_pair(&near, &far);
    CHECK_IS(send_from(near, "x", 1, &count, &overlapped), 0);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &other));
    CHECK(CloseHandle(event));
    send_all(far, "x", 1);
#ifdef _WIN32 /* where the call waits for the event */
    until_ended(&other);
#endif
    CHECK(GetOverlappedResult((HANDLE)near, &other, &count, TRUE));
    close_both(near, far);
}

/* With a port the event is set, too; with its low bit set there is no packet. */
static void the_low_bit_of_an_event_suppresses_the_packet(void)
{
    SOCKET near, far;
    char byte;
    HANDLE event = new_event(TRUE);
    OVERLAPPED with = fresh(event), without = fresh((HANDLE)((uintptr_t)event | 1));
    DWORD count = UNTOUCHED;
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &with));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &with);
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &without));
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
    send_all(far, "x", 1);
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK(GetOverlappedResult((HANDLE)near, &without, &count, FALSE));
    CHECK_IS(count, 1);
    CHECK(is_silent(port));
    CHECK_IS(send_from(near, "x", 1, &count, &without), 0);
    CHECK(is_silent(port));
#if HAS_SOCKET_CALLS
    /* The bit alone is not an event. */
    without = fresh((HANDLE)(uintptr_t)1);
    CHECK_IS(send_from(near, "x", 1, &count, &without), 0);
    CHECK(is_silent(port));
#endif
    close_both(near, far);
    CHECK(CloseHandle(event));
}

/* On a port without waiting threads, operations still end, and their packets are queued. */
static void a_port_at_which_nobody_waits_goes_on(void)
{
    SOCKET near, far;
    char byte;
    HANDLE event = new_event(TRUE), own = new_port(1);
    OVERLAPPED spun = fresh(NULL), waited = fresh(NULL), told = fresh(event);
    DWORD count = UNTOUCHED;
    associated_pair(own, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &spun));
    send_all(far, "a", 1);
    until_ended(&spun);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &waited));
    send_all(far, "b", 1);
    CHECK(GetOverlappedResult((HANDLE)near, &waited, &count, TRUE));
    CHECK_IS(byte, 'b');
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &told));
    send_all(far, "c", 1);
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK_ENDED(own, KEY, &spun, 1);
    CHECK_ENDED(own, KEY, &waited, 1);
    CHECK_ENDED(own, KEY, &told, 1);
    close_both(near, far);
    CHECK(CloseHandle(own));
    CHECK(CloseHandle(event));
}

/* A thread is in a handler while the operation of another socket ends. */
static void a_thread_that_has_waited_leaves_its_port_to_the_driver(void)
{
    SOCKET near, far;
    char byte;
    int round;
    DWORD count;
    ULONG_PTR key;
    LPOVERLAPPED which;
    HANDLE own = new_port(1);
    associated_pair(own, KEY, &near, &far);
    for (round = 0; round < (is_slow() ? 3 : tries(8, 20)); round++) {
        OVERLAPPED overlapped = fresh(NULL);
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        /* The port is attended for longer than the driver looks. */
        CHECK_FALSE(GetQueuedCompletionStatus(own, &count, &key, &which, 60), WAIT_TIMEOUT);
        send_all(far, "x", 1);
        until_ended(&overlapped);
        CHECK_ENDED(own, KEY, &overlapped, 1);
    }
    close_both(near, far);
    CHECK(CloseHandle(own));
}

/* The driver is asleep by then, and nothing is in flight when the thread leaves. */
static void what_begins_behind_the_last_packet_goes_on(void)
{
    SOCKET near, far;
    char byte;
    int round;
    HANDLE own = new_port(1), event = new_event(TRUE);
    associated_pair(own, KEY, &near, &far);
    for (round = 0; round < 3; round++) {
        OVERLAPPED first = fresh(NULL), second = fresh((HANDLE)((ULONG_PTR)event | 1));
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &first));
        CHECK(is_silent(own));
        CHECK(is_silent(own));
        CHECK(is_silent(own));
        send_all(far, "x", 1);
        CHECK_ENDED(own, KEY, &first, 1);
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &second));
        send_all(far, "y", 1);
        CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
        CHECK_IS(second.InternalHigh, 1);
    }
    close_both(near, far);
    CHECK(CloseHandle(event));
    CHECK(CloseHandle(own));
}

#if HAS_SOCKET_CALLS
static void results_refuse_bad_arguments(void)
{
    SOCKET near, far;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = 0, flags = 0;
    tcp_pair(&near, &far);
    CHECK_IS(send_from(near, "x", 1, NULL, &overlapped), 0);
    CHECK_FALSE(WSAGetOverlappedResult(near, NULL, &count, FALSE, &flags), WSAEFAULT);
    CHECK_FALSE(WSAGetOverlappedResult(near, &overlapped, NULL, FALSE, &flags), WSAEFAULT);
    CHECK_FALSE(WSAGetOverlappedResult(near, &overlapped, &count, FALSE, NULL), WSAEFAULT);
    CHECK_FALSE(WSAGetOverlappedResult(INVALID_SOCKET, &overlapped, &count, FALSE, &flags), WSAENOTSOCK);
    CHECK_FALSE(GetOverlappedResult((HANDLE)near, NULL, &count, FALSE), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetOverlappedResult((HANDLE)near, &overlapped, NULL, FALSE), ERROR_INVALID_PARAMETER);
    close_both(near, far);
}

#endif

static void an_operation_is_cancelled(void)
{
    SOCKET near, far;
    char bytes[2];
    OVERLAPPED first = fresh(NULL), second = fresh(NULL);
    DWORD count = UNTOUCHED, flags = 0;
    associated_pair(port, KEY, &near, &far);
    UNLESS_WINE("to cancel all of nothing succeeds")
        CHECK_FALSE(CancelIoEx((HANDLE)near, NULL), ERROR_NOT_FOUND);
    CHECK_FALSE(CancelIoEx((HANDLE)near, &first), ERROR_NOT_FOUND);
    CHECK_PENDING(receive_into(near, &bytes[0], 1, NULL, &first));
    CHECK_PENDING(receive_into(near, &bytes[1], 1, NULL, &second));
    CHECK(CancelIoEx((HANDLE)near, &first));
    CHECK_FAILED(port, KEY, &first, 0, ERROR_OPERATION_ABORTED);
    CHECK_IS((DWORD)first.Internal, CANCELLED);
    CHECK_FALSE(GetOverlappedResult((HANDLE)near, &first, &count, TRUE), ERROR_OPERATION_ABORTED);
    CHECK_FALSE(WSAGetOverlappedResult(near, &first, &count, TRUE, &flags), WSA_OPERATION_ABORTED);
    CHECK_FALSE(CancelIoEx((HANDLE)near, &first), ERROR_NOT_FOUND);
    /* The other one continues, and no byte is lost. */
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &second);
    CHECK_IS(bytes[1], 'x');
    close_both(near, far);
}

static void all_operations_of_a_socket_are_cancelled(void)
{
    enum { COUNT = 100 };
    SOCKET s = udp_socket();
    static OVERLAPPED overlapped[COUNT];
    static char bytes[COUNT];
    int place, seen[COUNT] = {0};
    bind_to_loopback(s);
    associate(s, port, KEY);
    for (place = 0; place < COUNT; place++) {
        overlapped[place] = fresh(NULL);
        CHECK_PENDING(receive_into(s, &bytes[place], 1, NULL, &overlapped[place]));
    }
    CHECK(CancelIoEx((HANDLE)s, NULL));
    for (place = 0; place < COUNT; place++) {
        DWORD count = UNTOUCHED;
        ULONG_PTR key;
        LPOVERLAPPED which = NULL;
        CHECK_FALSE(GetQueuedCompletionStatus(port, &count, &key, &which, SOON), ERROR_OPERATION_ABORTED);
        CHECK(which >= overlapped && which < overlapped + COUNT);
        CHECK_IS(seen[which - overlapped]++, 0);
    }
    CHECK(is_silent(port));
    closesocket(s);
}

typedef struct Other {
    SOCKET s;
    OVERLAPPED overlapped;
    char byte;
} Other;

static DWORD WINAPI begin_a_receive(LPVOID argument)
{
    Other *other = (Other *)argument;
    CHECK_PENDING(receive_into(other->s, &other->byte, 1, NULL, &other->overlapped));
    return 0;
}

static void a_thread_cancels_its_own_operations_only(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    Other other;
    HANDLE thread;
    associated_pair(port, KEY, &near, &far);
    other.s = near;
    other.overlapped = fresh(NULL);
    thread = CreateThread(NULL, 0, begin_a_receive, &other, 0, NULL);
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    CHECK(CloseHandle(thread));
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK(CancelIo((HANDLE)near));
    CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_OPERATION_ABORTED);
    /* It succeeds also if there is nothing to cancel. */
    CHECK(CancelIo((HANDLE)near));
    CHECK(is_silent(port));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &other.overlapped);
    close_both(near, far);
    UNLESS_WINE("operations of what is no file are cancelled") {
        CHECK_FALSE(CancelIo(INVALID_HANDLE_VALUE), ERROR_INVALID_HANDLE);
        CHECK_FALSE(CancelIoEx(INVALID_HANDLE_VALUE, NULL), ERROR_INVALID_HANDLE);
    }
}

static DWORD WINAPI cancel_own(LPVOID argument)
{
    CHECK(CancelIo((HANDLE)((Other *)argument)->s));
    return 0;
}

/* A thread that has started nothing cancels nothing, even if it has the ID of a finished thread. */
static void a_thread_that_has_ended_is_no_other(void)
{
    SOCKET near, far;
    Other other;
    int place;
    associated_pair(port, KEY, &near, &far);
    other.s = near;
    other.overlapped = fresh(NULL);
    for (place = 0; place < 8; place++) {
        HANDLE thread = CreateThread(NULL, 0, place == 0 ? begin_a_receive : cancel_own, &other, 0, NULL);
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(CloseHandle(thread));
    }
    CHECK(is_silent(port));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &other.overlapped);
    close_both(near, far);
}

typedef struct Taker {
    HANDLE port;
    OVERLAPPED *overlapped;
} Taker;

#ifndef _WIN32
static DWORD WINAPI take_what_was_cancelled(LPVOID argument)
{
    Taker *taker = (Taker *)argument;
    ULONGLONG began = GetTickCount64();
    CHECK_FAILED(taker->port, KEY, taker->overlapped, 0, ERROR_OPERATION_ABORTED);
    /* A wait that has timed out finds it in any case. */
    CHECK(GetTickCount64() - began < SOON / 2);
    return 0;
}

/* A call finds out that a socket was closed by a call that is not of the library: then its operations end, also if the
 * thread of their port sleeps. */
static void what_is_found_to_be_closed_ends(void)
{
    int by_a_registration;
    for (by_a_registration = 0; by_a_registration < 2; by_a_registration++) {
        SOCKET near, next;
        int ends[2];
        char byte;
        OVERLAPPED overlapped = fresh(NULL);
        Taker taker;
        HANDLE thread;
        taker.port = new_port(1);
        taker.overlapped = &overlapped;
        /* Not created by the library, which therefore checks what they are. */
        CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        near = (SOCKET)ends[0];
        associate(near, taker.port, KEY);
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        thread = CreateThread(NULL, 0, take_what_was_cancelled, &taker, 0, NULL);
        Sleep(A_WHILE * 3);
        /* Another socket has the number, and the library is not notified. */
        next = unseen_socket();
        CHECK_IS(dup2((int)next, (int)near), near);
        CHECK_IS(close((int)next), 0);
        if (by_a_registration) {
            CHECK_IS(enable(port, near, KEY, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
            CHECK_NEXT(port, KEY, SOCK_NOTIFY_EVENT_OUT);
        } else {
            CHECK(SetFileCompletionNotificationModes((HANDLE)near, 0));
        }
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(CloseHandle(thread));
        close_both(near, (SOCKET)ends[1]);
        CHECK(CloseHandle(taker.port));
    }
}

#endif

static void closesocket_ends_what_is_in_flight(void)
{
    SOCKET near, far, next;
    char bytes[2];
    OVERLAPPED first = fresh(NULL), second = fresh(NULL), alone = fresh(NULL);
    DWORD count = UNTOUCHED;
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, &bytes[0], 1, NULL, &first));
    CHECK_PENDING(receive_into(near, &bytes[1], 1, NULL, &second));
    CHECK_IS(closesocket(near), 0);
    CHECK_FAILED(port, KEY, &first, 0, closed_code());
    CHECK_FAILED(port, KEY, &second, 0, closed_code());
    /* The next socket of the number is associated with nothing. */
    next = next_of_number(near);
    CHECK_IS(send_from(next, "x", 1, NULL, &first), -1);
    associate(next, port, KEY + 1);
    closesocket(next);
    closesocket(far);
    /* Also without a port. */
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, bytes, 1, NULL, &alone));
    CHECK_IS(closesocket(near), 0);
    until_ended(&alone);
    UNLESS_WINE("what is in flight on a socket that is closed ends with another code")
        CHECK_IS((DWORD)alone.Internal, CANCELLED);
    CHECK_FALSE(GetOverlappedResult((HANDLE)far, &alone, &count, FALSE), closed_code());
    closesocket(far);
}

#if HAS_SOCKET_CALLS
/* CloseHandle works like closesocket. */
static void a_socket_is_closed_by_its_handle(void)
{
    HANDLE own_port = new_port(0);
    SOCKET s = udp_socket();
    OVERLAPPED overlapped;
    OVERLAPPED_ENTRY entry;
    UINT32 count = 0;
    WSABUF buffer;
    DWORD flags = 0;
    char byte;
    bind_to_loopback(s);
    memset(&overlapped, 0, sizeof overlapped);
    buffer.len = 1;
    buffer.buf = &byte;
    CHECK(CreateIoCompletionPort((HANDLE)(uintptr_t)s, own_port, 7, 0) == own_port);
    CHECK_SOCKET_ERROR(WSARecv(s, &buffer, 1, NULL, &flags, &overlapped, NULL), WSA_IO_PENDING);
    CHECK(CloseHandle((HANDLE)(uintptr_t)s));
    CHECK_IS(take_one(own_port, SOON, &entry, &count), ERROR_SUCCESS);
    CHECK(entry.lpOverlapped == &overlapped);
    CHECK_FALSE(GetOverlappedResult((HANDLE)(uintptr_t)s, &overlapped, &flags, FALSE), ERROR_OPERATION_ABORTED);
    CHECK(CloseHandle(own_port));
}

static void a_port_that_is_closed_ends_what_it_carries_out(void)
{
    SOCKET near, far;
    char byte;
    HANDLE own = new_port(1), event = new_event(TRUE);
    OVERLAPPED overlapped = fresh(event), next = fresh(NULL);
    DWORD count = UNTOUCHED;
    associated_pair(own, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK(CloseHandle(own));
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK_FALSE(GetOverlappedResult((HANDLE)near, &overlapped, &count, FALSE), ERROR_OPERATION_ABORTED);
    /* The socket continues, without a port or with another one. */
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &next));
    send_all(far, "x", 1);
    CHECK(GetOverlappedResult((HANDLE)near, &next, &count, TRUE));
    close_both(near, far);
    CHECK(CloseHandle(event));
}

#endif

static void what_succeeds_at_once_may_make_no_packet(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED;
    associated_pair(port, KEY, &near, &far);
    UNLESS_WINE("unknown modes of notification are taken")
        CHECK_FALSE(SetFileCompletionNotificationModes((HANDLE)near, 0x80), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(SetFileCompletionNotificationModes(INVALID_HANDLE_VALUE, 1), ERROR_INVALID_HANDLE);
    CHECK(SetFileCompletionNotificationModes((HANDLE)near, FILE_SKIP_SET_EVENT_ON_HANDLE));
    CHECK_IS(send_from(near, "x", 1, &count, &overlapped), 0);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK(SetFileCompletionNotificationModes((HANDLE)near, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS));
    CHECK_IS(send_from(near, "x", 1, &count, &overlapped), 0);
    CHECK_IS(count, 1);
    CHECK_IS((DWORD)overlapped.Internal, SUCCEEDED_WELL);
    CHECK(is_silent(port));
    /* A mode stays, and what waits makes a packet. */
    CHECK(SetFileCompletionNotificationModes((HANDLE)near, 0));
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &overlapped);
    close_both(near, far);
}

/* A socket is associated while operations are in flight. Packets report those, too. */
static void an_association_counts_for_what_is_in_flight(void)
{
    SOCKET near, far;
    char bytes[4];
    HANDLE event = new_event(TRUE);
    OVERLAPPED before = fresh(NULL), without = fresh((HANDLE)((uintptr_t)event | 1)), behind = fresh(NULL);
    OVERLAPPED cancelled = fresh(NULL);
    DWORD count = UNTOUCHED;
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &bytes[0], 1, NULL, &before));
    CHECK_PENDING(receive_into(near, &bytes[1], 1, NULL, &without));
    associate(near, port, KEY);
    CHECK_PENDING(receive_into(near, &bytes[2], 1, NULL, &behind));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &before);
    send_all(far, "y", 1);
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK(is_silent(port));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &behind);
    close_both(near, far);
    /* Even if they end with the socket. */
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &bytes[3], 1, NULL, &cancelled));
    associate(near, port, KEY);
    CHECK_IS(closesocket(near), 0);
    CHECK_FAILED(port, KEY, &cancelled, 0, closed_code());
    closesocket(far);
    /* But not operations that have already ended. */
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, bytes, 1, NULL, &before));
    send_all(far, "x", 1);
    CHECK(GetOverlappedResult((HANDLE)near, &before, &count, TRUE));
    CHECK_IS(send_from(near, "x", 1, NULL, &behind), 0);
    associate(near, port, KEY);
    CHECK(is_silent(port));
    close_both(near, far);
    CHECK(CloseHandle(event));
}

#if HAS_SOCKET_CALLS
/* The number now names another socket, which the library does not know. Operations in flight on the former one make no
 * packets at the new one's port. */
static void an_association_counts_for_its_own_socket(void)
{
    SOCKET near, far, next;
    char byte;
    OVERLAPPED before = fresh(NULL), behind = fresh(NULL);
    int ends[2];
    HANDLE own = new_port(1), other = new_port(1);
    CHECK_IS(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    near = (SOCKET)ends[0];
    far = (SOCKET)ends[1];
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &before));
    next = unseen_socket();
    CHECK_IS(dup2((int)next, (int)near), near);
    associate(near, own, KEY);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &behind));
    until_ended(&before);
    CHECK_IS((DWORD)before.Internal, CANCELLED);
    CHECK(is_silent(own));
    /* A closed port does not count, and the next association applies. */
    CHECK(CancelIoEx((HANDLE)near, &behind));
    CHECK_FAILED(own, KEY, &behind, 0, ERROR_OPERATION_ABORTED);
    CHECK(CloseHandle(own));
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &behind));
    associate(near, other, KEY + 1);
    CHECK(CancelIoEx((HANDLE)near, &behind));
    CHECK_FAILED(other, KEY + 1, &behind, 0, ERROR_OPERATION_ABORTED);
    close_both(near, far);
    closesocket(next);
    CHECK(CloseHandle(other));
}
#endif

typedef struct Sender {
    SOCKET to;
    volatile LONG is_open;
} Sender;

static DWORD WINAPI send_a_byte(LPVOID argument)
{
    Sender *sender = (Sender *)argument;
    while (!InterlockedCompareExchange(&sender->is_open, 0, 0))
        SwitchToThread();
    send_all(sender->to, "x", 1);
    return 0;
}

/* An operation ends while its socket is being associated. If it is still pending after that, a packet comes. If a
 * thread has already seen its end, none comes. */
static void an_association_may_come_when_an_operation_ends(void)
{
    int round, rounds = is_slow() ? 10 : tries(200, 5000);
    for (round = 0; round < rounds; round++) {
        SOCKET near;
        Sender sender;
        char byte;
        OVERLAPPED overlapped = fresh(NULL), sending = fresh(NULL);
        OVERLAPPED_ENTRY entry;
        UINT32 received;
        HANDLE own = new_port(1), thread;
        int turn, has_ended, is_pending;
        tcp_pair(&near, &sender.to);
        sender.is_open = 0;
        thread = CreateThread(NULL, 0, send_a_byte, &sender, 0, NULL);
        CHECK(thread != NULL);
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        InterlockedExchange(&sender.is_open, 1);
        has_ended = round % 2;
        if (has_ended)
            until_ended(&overlapped);
        for (turn = 0; !has_ended && turn < round % 50; turn++)
            SwitchToThread();
        associate(near, own, KEY);
        is_pending = !HasOverlappedIoCompleted(&overlapped);
        if (is_pending) {
            CHECK_ENDED(own, KEY, &overlapped, 1);
        } else { /* one packet at most, and it is the first */
            CHECK_IS(send_from(near, "y", 1, NULL, &sending), 0);
            CHECK_IS(take_one(own, SOON, &entry, &received), NO_ERROR);
            if (entry.lpOverlapped == &overlapped && !has_ended)
                CHECK_ENDED(own, KEY, &sending, 1);
            else
                CHECK(entry.lpOverlapped == &sending);
        }
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(CloseHandle(thread));
        close_both(near, sender.to);
        CHECK(CloseHandle(own));
    }
}

/* A duplicate by the reference's call is associated with the same port and key. */
static void a_duplicate_completes_on_the_port_of_its_socket(void)
{
    SOCKET near, far, again;
    WSAPROTOCOL_INFOA info;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK(SetFileCompletionNotificationModes((HANDLE)near, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS));
    CHECK_IS(WSADuplicateSocketA(near, GetCurrentProcessId(), &info), 0);
    again = WSASocketA(info.iAddressFamily, info.iSocketType, info.iProtocol, &info, 0, 0);
    CHECK(again != INVALID_SOCKET);
    CHECK_IS(closesocket(near), 0);
    CHECK_PENDING(receive_into(again, &byte, 1, NULL, &overlapped));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &overlapped);
    CHECK_IS(send_from(again, "x", 1, NULL, &overlapped), 0);
    CHECK(is_silent(port));
    SetLastError(0);
    CHECK(CreateIoCompletionPort((HANDLE)again, port, KEY, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    close_both(again, far);
}

/* One that is idle is carried out by its port from then on: the thread that waits there is enough. */
static void an_idle_socket_goes_over_to_its_port(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED;
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "x", 1);
    CHECK(GetOverlappedResult((HANDLE)near, &overlapped, &count, TRUE));
    associate(near, port, KEY);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "y", 1);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK_IS(byte, 'y');
    close_both(near, far);
}

#if HAS_SOCKET_CALLS
/* A wait for the result leaves an auto-reset event set: the next operation resets it. */
static void a_wait_for_the_result_takes_no_event(void)
{
    SOCKET near, far;
    char byte;
    HANDLE event = new_event(FALSE);
    OVERLAPPED overlapped = fresh(event);
    DWORD bytes;
    tcp_pair(&near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "x", 1);
    CHECK(GetOverlappedResult((HANDLE)near, &overlapped, &bytes, TRUE));
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
    send_all(far, "x", 1);
    if (receive_into(near, &byte, 1, NULL, &overlapped) != 0)
        CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
    CHECK(GetOverlappedResult((HANDLE)near, &overlapped, &bytes, TRUE));
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
    /* The socket itself is not an event. */
    SetLastError(0);
    CHECK_IS(WaitForSingleObject((HANDLE)near, 0), WAIT_FAILED);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    close_both(near, far);
    until_ended(&overlapped);
    CHECK(CloseHandle(event));
}

static DWORD WINAPI set_event(LPVOID event)
{
    Sleep(A_WHILE);
    CHECK(SetEvent((HANDLE)event));
    return 0;
}

/* A wait for the result ends when any thread sets the event. The operation may then still be pending. */
static void a_wait_for_the_result_is_one_for_the_event(void)
{
    SOCKET near, far;
    char byte;
    int stays, by_winsock;
    for (stays = 0; stays < 2; stays++)
        for (by_winsock = 0; by_winsock < 2; by_winsock++) {
            HANDLE event = new_event(stays), thread;
            OVERLAPPED overlapped = fresh((HANDLE)((uintptr_t)event | (unsigned)by_winsock));
            DWORD count = UNTOUCHED, flags;
            tcp_pair(&near, &far);
            if (by_winsock)
                associate(near, port, KEY);
            CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
            thread = CreateThread(NULL, 0, set_event, event, 0, NULL);
            if (by_winsock)
                CHECK(WSAGetOverlappedResult(near, &overlapped, &count, TRUE, &flags));
            else
                CHECK(GetOverlappedResult((HANDLE)near, &overlapped, &count, TRUE));
            CHECK_IS(count, 0);
            CHECK(!HasOverlappedIoCompleted(&overlapped));
            CHECK_IS(WaitForSingleObject(event, 0), stays ? WAIT_OBJECT_0 : WAIT_TIMEOUT);
            CHECK(ResetEvent(event));
            CHECK_FALSE(GetOverlappedResultEx((HANDLE)near, &overlapped, &count, 5, FALSE), WAIT_TIMEOUT);
            CHECK_FALSE(GetOverlappedResult((HANDLE)near, &overlapped, &count, FALSE), ERROR_IO_INCOMPLETE);
            send_all(far, "x", 1);
            CHECK(GetOverlappedResult((HANDLE)near, &overlapped, &count, TRUE));
            CHECK_IS(count, 1);
            CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
            CHECK(CloseHandle(thread) && CloseHandle(event));
            close_both(near, far);
        }
    CHECK(is_silent(port));
}

/* WSAIoctl has finished when it returns, and makes a packet as WSARecv does. */
static void an_ioctl_with_an_overlapped_makes_a_packet(void)
{
    SOCKET near, far;
    char bytes[3];
    HANDLE event = new_event(FALSE);
    OVERLAPPED overlapped = fresh(event), receive = fresh(NULL), bad = fresh(port);
    DWORD waiting = UNTOUCHED, count = UNTOUCHED, flags = UNTOUCHED, on = 1;
    associated_pair(port, KEY, &near, &far);
#define IOCTL(s, size, told, overlapped) WSAIoctl(s, FIONREAD, NULL, 0, &waiting, size, told, overlapped, NULL)
    send_all(far, "xyz", 3);
    until(near, POLLIN);
    CHECK_IS(IOCTL(near, sizeof waiting, &count, &overlapped), 0);
    CHECK_IS(waiting, 3);
    CHECK_IS(count, sizeof waiting);
    CHECK_ENDED(port, KEY, &overlapped, sizeof waiting);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
    CHECK(WSAGetOverlappedResult(near, &overlapped, &count, FALSE, &flags));
    CHECK(count == sizeof waiting && flags == 0);
    /* The pointer to the count may be NULL. */
    CHECK_IS(IOCTL(near, sizeof waiting, NULL, &overlapped), 0);
    CHECK_ENDED(port, KEY, &overlapped, sizeof waiting);
    CHECK_SOCKET_ERROR(IOCTL(near, sizeof waiting, NULL, NULL), WSAEFAULT);
    /* The low bit of the event suppresses the packet. A failure makes none. */
    overlapped = fresh((HANDLE)((uintptr_t)event | 1));
    CHECK_IS(IOCTL(near, sizeof waiting, &count, &overlapped), 0);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
    overlapped = fresh(NULL);
    CHECK_SOCKET_ERROR(IOCTL(near, 1, &count, &overlapped), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSAIoctl(near, 0x12345678, NULL, 0, NULL, 0, &count, &overlapped, NULL), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(IOCTL(INVALID_SOCKET, sizeof waiting, &count, &overlapped), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(IOCTL(near, sizeof waiting, &count, &bad), ERROR_INVALID_HANDLE);
    CHECK_SOCKET_ERROR(WSAIoctl(near, FIONBIO, &on, sizeof on, NULL, 0, &count, &overlapped,
                                (LPWSAOVERLAPPED_COMPLETION_ROUTINE)(void (*)(void))start),
                       WSAEOPNOTSUPP);
    CHECK(!is_nonblocking(near));
    receive_all(near, bytes, 3);
    CHECK_PENDING(receive_into(near, bytes, 1, NULL, &receive));
    CHECK_SOCKET_ERROR(IOCTL(near, sizeof waiting, &count, &receive), WSAEINVAL);
    CHECK_IS(WSAIoctl(near, FIONBIO, &on, sizeof on, NULL, 0, &count, &overlapped, NULL), 0);
    CHECK(is_nonblocking(near));
    CHECK_ENDED(port, KEY, &overlapped, 0);
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &receive);
    CHECK(SetFileCompletionNotificationModes((HANDLE)near, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS));
    CHECK_IS(IOCTL(near, sizeof waiting, &count, &overlapped), 0);
    CHECK(is_silent(port));
    close_both(near, far);
    /* Without a port. */
    tcp_pair(&near, &far);
    overlapped = fresh(event);
    CHECK_IS(IOCTL(near, sizeof waiting, &count, &overlapped), 0);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
    close_both(near, far);
    CHECK(CloseHandle(event));
#undef IOCTL
}

/* WSA_FLAG_OVERLAPPED has no effect here. */
static void any_socket_takes_operations(void)
{
    static const DWORD flags[] = {0, WSA_FLAG_OVERLAPPED, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT};
    size_t place;
    for (place = 0; place < sizeof flags / sizeof *flags; place++) {
        SOCKET s = WSASocketW(AF_INET, SOCK_DGRAM, IPPROTO_UDP, NULL, 0, flags[place]);
        OVERLAPPED overlapped = fresh(NULL);
        char byte;
        CHECK(s != INVALID_SOCKET);
        CHECK_IS(is_inherited(s), !(flags[place] & WSA_FLAG_NO_HANDLE_INHERIT));
        bind_to_loopback(s);
        CHECK_PENDING(receive_into(s, &byte, 1, NULL, &overlapped));
        send_to_itself(s);
        until_ended(&overlapped);
        CHECK_IS(overlapped.InternalHigh, 1);
        CHECK_IS(closesocket(s), 0);
    }
}
#endif

#if HAS_SOCKET_CALLS

static SOCKET local_listener(struct sockaddr_un *address, socklen_t *size)
{
    SOCKET s = socket(AF_UNIX, SOCK_STREAM, 0);
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    CHECK_IS(bind(s, (struct sockaddr *)address, sizeof address->sun_family), 0);
    *size = sizeof *address;
    CHECK_IS(getsockname(s, (struct sockaddr *)address, size), 0);
    CHECK_IS(listen(s, 1), 0);
    return s;
}

static DWORD WINAPI accepts_in_vain(LPVOID argument)
{
    SOCKET made = accept(*(SOCKET *)argument, NULL, NULL);
    CHECK(made == INVALID_SOCKET);
    return (DWORD)WSAGetLastError();
}

/* They end as a blocking call does, although the system does not report the shutdown to a non-blocking attempt. */
static void the_own_shutdown_ends_receives_and_accepts(void)
{
    struct sockaddr_un local;
    struct sockaddr_in own;
    socklen_t size;
    int way, pair[2];
    for (way = 0; way < 4; way++) {
        SOCKET s = udp_socket(), other = INVALID_SOCKET;
        OVERLAPPED overlapped;
        WSABUF buffer;
        DWORD flags = 0, count = 7;
        char byte;
        memset(&overlapped, 0, sizeof overlapped);
        own = bind_to_loopback(s);
        CHECK_IS(connect(s, (struct sockaddr *)&own, sizeof own), 0);
        if (way & 1) {
            CHECK_IS(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
            closesocket(s);
            s = (SOCKET)pair[0];
            other = (SOCKET)pair[1];
        }
        buffer.buf = &byte;
        buffer.len = way & 2 ? 0 : 1; /* also one that only waits for data */
        CHECK_SOCKET_ERROR(WSARecv(s, &buffer, 1, NULL, &flags, &overlapped, NULL), WSA_IO_PENDING);
        CHECK_IS(shutdown(s, SD_RECEIVE), 0);
        CHECK(WSAGetOverlappedResult(s, &overlapped, &count, TRUE, &flags));
        CHECK_IS(count, 0);
        closesocket(s);
        closesocket(other);
    }
    for (way = 0; way < 2; way++) {
        SOCKET listener = way ? local_listener(&local, &size) : tcp_listener(&own);
        SOCKET accepted = socket(way ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
        char room[2 * (sizeof(struct sockaddr_un) + 16)];
        OVERLAPPED overlapped;
        DWORD count, flags, block = sizeof room / 2;
        HANDLE thread;
        memset(&overlapped, 0, sizeof overlapped);
        CHECK_FALSE(AcceptEx(listener, accepted, room, 0, block, block, &count, &overlapped), ERROR_IO_PENDING);
        thread = CreateThread(NULL, 0, accepts_in_vain, &listener, 0, NULL);
        CHECK(thread != NULL);
        CHECK_IS(shutdown(listener, SD_BOTH), 0);
        CHECK(!WSAGetOverlappedResult(listener, &overlapped, &count, TRUE, &flags));
        CHECK_IS(WSAGetLastError(), WSAEINVAL);
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(GetExitCodeThread(thread, &count));
        CHECK_IS(count, WSAEINVAL);
        CHECK(CloseHandle(thread));
        closesocket(listener);
        closesocket(accepted);
    }
}

#endif

int main(void)
{
    start();
#ifndef _WIN32
    one_thread_sees_to_everything();
#endif
    port = new_port(2);
    without_a_port_a_thread_waits_for_the_result();
    without_a_port_a_thread_spins();
    without_a_port_a_thread_waits_for_events();
    an_event_is_set_by_what_ends_at_once_and_may_be_closed_meanwhile();
    the_low_bit_of_an_event_suppresses_the_packet();
    a_port_at_which_nobody_waits_goes_on();
    a_thread_that_has_waited_leaves_its_port_to_the_driver();
    what_begins_behind_the_last_packet_goes_on();
#if HAS_SOCKET_CALLS
    results_refuse_bad_arguments();
    a_wait_for_the_result_takes_no_event();
    any_socket_takes_operations();
    a_wait_for_the_result_is_one_for_the_event();
    an_ioctl_with_an_overlapped_makes_a_packet();
    the_own_shutdown_ends_receives_and_accepts();
#endif
    an_operation_is_cancelled();
    all_operations_of_a_socket_are_cancelled();
    a_thread_cancels_its_own_operations_only();
    a_thread_that_has_ended_is_no_other();
#ifndef _WIN32
    what_is_found_to_be_closed_ends();
#endif
    closesocket_ends_what_is_in_flight();
#if HAS_SOCKET_CALLS
    a_socket_is_closed_by_its_handle();
    a_port_that_is_closed_ends_what_it_carries_out();
#endif
    what_succeeds_at_once_may_make_no_packet();
    an_association_counts_for_what_is_in_flight();
#if HAS_SOCKET_CALLS
    an_association_counts_for_its_own_socket();
#endif
    an_association_may_come_when_an_operation_ends();
    a_duplicate_completes_on_the_port_of_its_socket();
    an_idle_socket_goes_over_to_its_port();
    CHECK(CloseHandle(port));
    return finish();
}
