/* Several threads start, end, cancel and close operations at the same time. Each started operation
 * makes one packet. Its memory is freed when that is taken, or as soon as its end is seen. */
#include <winsock2.h>
#include <mswsock.h>

#include "check.h"
#include "overlapped.h"

enum { TAKERS = 3, STARTERS = 3, CONNECTORS = 2, MOST = 8 };

typedef struct Operation {
    OVERLAPPED overlapped;
    char bytes[64];
} Operation;

static HANDLE port;
static volatile LONG begun, ended, is_over, is_given_up;
static LPFN_CONNECTEX connect_ex;

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static DWORD WINAPI take(LPVOID argument)
{
    OVERLAPPED_ENTRY entries[16];
    (void)argument;
    while (!is_over || (ended < begun && !is_given_up)) {
        ULONG count = 0, place;
        if (!GetQueuedCompletionStatusEx(port, entries, 16, &count, 50, FALSE)) {
            CHECK_IS(GetLastError(), WAIT_TIMEOUT);
            continue;
        }
        for (place = 0; place < count; place++) {
            DWORD ending = (DWORD)entries[place].Internal;
            /* Wine has several statuses for an operation whose socket is closed. */
            CHECK(ending == SUCCEEDED_WELL || ending == CANCELLED || ending == CONNECTION_RESET || is_wine());
            CHECK(entries[place].dwNumberOfBytesTransferred <= 64);
            free(entries[place].lpOverlapped);
            InterlockedIncrement(&ended);
        }
    }
    return 0;
}

static void begin_one(SOCKET s, int receives)
{
    Operation *operation = (Operation *)malloc(sizeof *operation);
    int done;
    CHECK(operation != NULL);
    operation->overlapped = fresh(NULL);
    memset(operation->bytes, 'x', sizeof operation->bytes);
    InterlockedIncrement(&begun);
    done = receives ? receive_into(s, operation->bytes, sizeof operation->bytes, NULL, &operation->overlapped)
                    : send_from(s, operation->bytes, sizeof operation->bytes, NULL, &operation->overlapped);
    if (done != 0 && WSAGetLastError() != WSA_IO_PENDING) {
        InterlockedDecrement(&begun);
        free(operation);
    }
}

static DWORD WINAPI begin(LPVOID argument)
{
    unsigned seed = (unsigned)(UINT_PTR)argument;
    int round, rounds = is_slow() ? 20 : 300;
    for (round = 0; round < rounds; round++) {
        SOCKET near, far;
        int count, most = 1 + (int)(next_random(&seed) % MOST);
        associated_pair(port, 1, &near, &far);
        associate(far, port, 2);
        for (count = 0; count < most; count++) {
            begin_one(near, next_random(&seed) % 2 != 0);
            begin_one(far, next_random(&seed) % 2 != 0);
            if (next_random(&seed) % 4 == 0)
                CancelIoEx((HANDLE)near, NULL);
            if (next_random(&seed) % 4 == 0)
                CancelIo((HANDLE)far);
        }
        if (next_random(&seed) % 2 != 0)
            abort_connection(near);
        else
            closesocket(near);
        closesocket(far);
    }
    return 0;
}

/* A connect ends while it is cancelled, or its socket closed. */
static DWORD WINAPI connect_and_end(LPVOID argument)
{
    unsigned seed = (unsigned)(UINT_PTR)argument;
    int round, rounds = is_slow() ? 20 : 500;
    for (round = 0; round < rounds; round++) {
        struct sockaddr_in address;
        SOCKET listener = tcp_listener(&address), s = tcp_socket();
        Operation *operation = (Operation *)malloc(sizeof *operation);
        unsigned turns = next_random(&seed) % 4, way = next_random(&seed) % 3;
        DWORD size = next_random(&seed) % 2;
        CHECK(operation != NULL);
        operation->overlapped = fresh(NULL);
        operation->bytes[0] = 'x';
        bind_to_loopback(s);
        associate(s, port, 3);
        InterlockedIncrement(&begun);
        if (!connect_ex(s, (struct sockaddr *)&address, sizeof address, operation->bytes, size, NULL,
                        &operation->overlapped))
            CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
        while (turns-- > 0)
            SwitchToThread();
        if (way == 0)
            CancelIoEx((HANDLE)s, &operation->overlapped);
        else if (way == 1)
            CancelIo((HANDLE)s);
        CHECK_IS(closesocket(s), 0);
        CHECK_IS(closesocket(listener), 0);
    }
    return 0;
}

static void look_up_connect(void)
{
    SOCKET s = tcp_socket();
    GUID guid = WSAID_CONNECTEX;
    DWORD bytes = 0;
    CHECK_IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &guid, sizeof guid, &connect_ex, sizeof connect_ex, &bytes,
                      NULL, NULL),
             0);
    CHECK_IS(closesocket(s), 0);
}

/* Without a port: a thread frees its operation as soon as it sees the end. */
static void memory_is_freed_as_soon_as_the_end_is_seen(void)
{
    SOCKET near, far;
    int round, rounds = is_slow() ? 20 : 500;
    tcp_pair(&near, &far);
    for (round = 0; round < rounds; round++) {
        Operation *operation = (Operation *)malloc(sizeof *operation);
        CHECK(operation != NULL);
        operation->overlapped = fresh(NULL);
        CHECK_PENDING(receive_into(near, operation->bytes, 1, NULL, &operation->overlapped));
        if (round % 2 == 0)
            send_all(far, "x", 1);
        else
            CHECK(CancelIoEx((HANDLE)near, &operation->overlapped));
        until_ended(&operation->overlapped);
        free(operation);
    }
    close_both(near, far);
}

/* One end of a connection that a thread closes while another one begins receives on it. */
typedef struct Closing {
    HANDLE port, has_closed;
    SOCKET near;
    LONG begun, ended, lost;
} Closing;

static int begins_another(Closing *closing)
{
    Operation *operation = (Operation *)malloc(sizeof *operation);
    CHECK(operation != NULL);
    operation->overlapped = fresh(NULL);
    if (receive_into(closing->near, operation->bytes, 1, NULL, &operation->overlapped) != 0 &&
        WSAGetLastError() != WSA_IO_PENDING) {
        free(operation);
        return 0;
    }
    closing->begun++;
    return 1;
}

/* As a server does: each end is followed by another start. Until one is refused, as it must be when the socket is
 * closed, at the latest. */
static DWORD WINAPI begin_behind_each_end(LPVOID argument)
{
    Closing *closing = (Closing *)argument;
    int begins = 1, has_closed = 0;
    while (begins || !has_closed || closing->ended < closing->begun) {
        DWORD bytes;
        ULONG_PTR key;
        LPOVERLAPPED which = NULL;
        GetQueuedCompletionStatus(closing->port, &bytes, &key, &which, has_closed ? (is_wine() ? 10000 : SOON) : 50);
        if (which == NULL && has_closed && !begins) {
            closing->lost = closing->begun - closing->ended;
            break;
        }
        if (which != NULL) {
            closing->ended++;
            free(which);
        }
        if (begins)
            begins = begins_another(closing);
        has_closed = WaitForSingleObject(closing->has_closed, 0) == WAIT_OBJECT_0;
    }
    return 0;
}

static void nothing_that_begins_while_its_socket_is_closed_is_lost(void)
{
    int round, rounds = is_slow() ? 10 : tries(150, 500);
    for (round = 0; round < rounds; round++) {
        Closing closing;
        SOCKET far;
        HANDLE thread;
        int count;
        closing.port = new_port(0);
        closing.has_closed = CreateEvent(NULL, TRUE, FALSE, NULL);
        closing.begun = closing.ended = closing.lost = 0;
        associated_pair(closing.port, 1, &closing.near, &far);
        for (count = 0; count < 1 + round % 5; count++)
            CHECK(begins_another(&closing));
        thread = CreateThread(NULL, 0, begin_behind_each_end, &closing, 0, NULL);
        for (count = 0; count < round % 7; count++)
            SwitchToThread();
        CHECK_IS(closesocket(closing.near), 0);
        CHECK(SetEvent(closing.has_closed));
        CHECK_IS(WaitForSingleObject(thread, INFINITE), WAIT_OBJECT_0);
        UNLESS_WINE("some receives never end")
            CHECK_IS(closing.lost, 0);
        CHECK_IS(closesocket(far), 0);
        CHECK(CloseHandle(thread));
        CHECK(CloseHandle(closing.has_closed));
        CHECK(CloseHandle(closing.port));
    }
}

enum { BLOCK = sizeof(struct sockaddr_in6) + 16, ACCEPTERS = 3, ACCEPTS = 12, CLIENTS = 40 };

/* One accept. Its thread closes the socket that it gives, unless the one that takes the packet does. */
typedef struct Accept {
    OVERLAPPED overlapped;
    SOCKET given;
    int is_closed_by_beginner;
    char place[1 + 2 * BLOCK];
} Accept;

/* A listener on which several threads begin accepts, until it is closed. */
typedef struct Listening {
    HANDLE port;
    SOCKET listener;
    unsigned round;
    volatile LONG beginners, begun, ended, accepted;
} Listening;

/* Returns whether an accept has begun. The thread may then close its socket, or cancel it. */
static int begins_accept(Listening *listening, unsigned *seed)
{
    Accept *accept = (Accept *)malloc(sizeof *accept);
    SOCKET given = tcp_socket();
    unsigned way = next_random(seed) % 8;
    DWORD data = next_random(seed) % 4 == 0;
    CHECK(accept != NULL);
    accept->overlapped = fresh(NULL);
    accept->given = given;
    accept->is_closed_by_beginner = way == 0;
    InterlockedIncrement(&listening->begun);
    if (!AcceptEx(listening->listener, given, accept->place, data, BLOCK, BLOCK, NULL, &accept->overlapped) &&
        WSAGetLastError() != WSA_IO_PENDING) {
        InterlockedDecrement(&listening->begun);
        CHECK_IS(closesocket(given), 0);
        free(accept);
        return 0;
    }
    if (way == 0)
        CHECK_IS(closesocket(given), 0);
    else if (way == 1)
        CancelIoEx((HANDLE)listening->listener, &accept->overlapped);
    return 1;
}

static DWORD WINAPI begin_accepts(LPVOID argument)
{
    Listening *listening = (Listening *)argument;
    unsigned seed = 100 * listening->round + (unsigned)InterlockedIncrement(&listening->beginners);
    while (begins_accept(listening, &seed)) {
        while (listening->begun - listening->ended >= ACCEPTS)
            SwitchToThread();
    }
    return 0;
}

/* The only one that counts ends: until a packet is missing, or the key that says that no more begin has come. */
static DWORD WINAPI take_accepts(LPVOID argument)
{
    Listening *listening = (Listening *)argument;
    int is_last = 0;
    while (!is_last || listening->ended < listening->begun) {
        DWORD bytes;
        ULONG_PTR key = 0;
        LPOVERLAPPED which = NULL;
        int done = GetQueuedCompletionStatus(listening->port, &bytes, &key, &which, is_last ? SOON : INFINITE);
        Accept *accept = CONTAINING_RECORD(which, Accept, overlapped);
        if (which == NULL) {
            if (!done)
                break;
            is_last = 1;
            continue;
        }
        CHECK(done ? bytes <= 1 : bytes == 0);
        listening->accepted += done;
        if (!accept->is_closed_by_beginner)
            CHECK_IS(closesocket(accept->given), 0);
        free(accept);
        InterlockedIncrement(&listening->ended);
    }
    return 0;
}

/* Each accept ends once, while threads begin, cancel and close others, and when its listener is closed. */
static void accepts_of_several_threads_end_once(void)
{
    int round, rounds = is_slow() ? 5 : tries(40, 200);
    LONG accepted = 0;
    for (round = 0; round < rounds; round++) {
        struct sockaddr_in address;
        Listening listening;
        HANDLE threads[ACCEPTERS], taker;
        int place, client;
        memset(&listening, 0, sizeof listening);
        listening.round = (unsigned)round;
        listening.port = new_port(0);
        listening.listener = tcp_listener(&address);
        associate(listening.listener, listening.port, 1);
        taker = CreateThread(NULL, 0, take_accepts, &listening, 0, NULL);
        for (place = 0; place < ACCEPTERS; place++)
            threads[place] = CreateThread(NULL, 0, begin_accepts, &listening, 0, NULL);
        for (client = 0; client < CLIENTS; client++) {
            SOCKET s = tcp_socket();
            CHECK_IS(connect(s, (struct sockaddr *)&address, sizeof address), 0);
            /* The connection may be gone already. */
            if (client % 3 != 0)
                (void)send(s, "x", 1, 0);
            CHECK_IS(closesocket(s), 0);
        }
        CHECK_IS(closesocket(listening.listener), 0);
        CHECK_IS(WaitForMultipleObjects(ACCEPTERS, threads, TRUE, INFINITE), WAIT_OBJECT_0);
        CHECK(PostQueuedCompletionStatus(listening.port, 0, 2, NULL));
        CHECK_IS(WaitForSingleObject(taker, INFINITE), WAIT_OBJECT_0);
        CHECK_IS(listening.ended, listening.begun);
        accepted += listening.accepted;
        for (place = 0; place < ACCEPTERS; place++)
            CHECK(CloseHandle(threads[place]));
        CHECK(CloseHandle(taker));
        CHECK(CloseHandle(listening.port));
    }
    CHECK(accepted > 0);
}

int main(void)
{
    HANDLE takers[TAKERS], starters[STARTERS + CONNECTORS];
    int place;
    start();
    look_up_connect();
    port = new_port(2);
    for (place = 0; place < TAKERS; place++)
        takers[place] = CreateThread(NULL, 0, take, NULL, 0, NULL);
    for (place = 0; place < STARTERS; place++)
        starters[place] = CreateThread(NULL, 0, begin, (LPVOID)(UINT_PTR)(place + 1), 0, NULL);
    for (place = STARTERS; place < STARTERS + CONNECTORS; place++)
        starters[place] = CreateThread(NULL, 0, connect_and_end, (LPVOID)(UINT_PTR)(place + 1), 0, NULL);
    CHECK_IS(WaitForMultipleObjects(STARTERS + CONNECTORS, starters, TRUE, INFINITE), WAIT_OBJECT_0);
    InterlockedExchange(&is_over, 1);
    if (is_wine() && WaitForMultipleObjects(TAKERS, takers, TRUE, 2000) != WAIT_OBJECT_0) {
        UNLESS_WINE("some receives never end")
            CHECK(0);
        InterlockedExchange(&is_given_up, 1);
    }
    CHECK_IS(WaitForMultipleObjects(TAKERS, takers, TRUE, SOON), WAIT_OBJECT_0);
    if (is_given_up)
        CHECK(begun - ended > 0 && begun - ended < 10);
    else
        CHECK_IS(ended, begun);
    CHECK(begun > 0);
    memory_is_freed_as_soon_as_the_end_is_seen();
    nothing_that_begins_while_its_socket_is_closed_is_lost();
    accepts_of_several_threads_end_once();
    for (place = 0; place < TAKERS; place++)
        CloseHandle(takers[place]);
    for (place = 0; place < STARTERS + CONNECTORS; place++)
        CloseHandle(starters[place]);
    CHECK(CloseHandle(port));
    return finish();
}
