/* Receives of a stream that has one in flight at a time. One task of the port carries them out, until something else
 * starts on the reading side. A program must not see the difference: the bytes, the order and the packets are those of
 * any receives. */
#include <winsock2.h>
#include <mswsock.h>

#include "check.h"
#include "overlapped.h"

#define KEY 5u
#define WATCHED 6u

static HANDLE port;

/* Begins a receive, which may be done immediately. A packet reports its end. */
static void begin(SOCKET s, void *bytes, size_t size, LPOVERLAPPED overlapped)
{
    *overlapped = fresh(NULL);
    if (receive_into(s, bytes, size, NULL, overlapped) != 0)
        CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
}

/* The next receive waits, and a byte ends it. */
static void check_it_receives(HANDLE own, SOCKET near, SOCKET far)
{
    char byte = 0;
    OVERLAPPED overlapped = fresh(NULL);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK(is_silent(own));
    CHECK_ENDED_BY_A_BYTE(far, own, KEY, &overlapped);
    CHECK_IS(byte, 'x');
}

/* Two ends of a connection. The first has received something that it had to wait for, and has drained the socket. */
static void pair_that_has_received(HANDLE own, SOCKET *near, SOCKET *far)
{
    char bytes[2];
    OVERLAPPED overlapped = fresh(NULL);
    associated_pair(own, KEY, near, far);
    CHECK_PENDING(receive_into(*near, bytes, sizeof bytes, NULL, &overlapped));
    CHECK_ENDED_BY_A_BYTE(*far, own, KEY, &overlapped);
}

/* ---- data ------------------------------------------------------------------------------------- */

static void data_is_received_whenever_it_comes(void)
{
    enum { WAITED_FOR, UNSEEN, SEEN, IN_PIECES, WAYS };
    SOCKET near, far;
    int round;
    associated_pair(port, KEY, &near, &far);
    for (round = 0; round < 10 * WAYS; round++) {
        char bytes[4] = {0}, text[2] = {(char)('A' + round), 'z'};
        OVERLAPPED overlapped = fresh(NULL);
        DWORD received = UNTOUCHED;
        int way = (round * 7 + round / WAYS) % WAYS;
        if (way == WAITED_FOR || way == IN_PIECES)
            CHECK_PENDING(receive_into(near, bytes, sizeof bytes, NULL, &overlapped));
        send_all(far, text, way == IN_PIECES ? 1 : 2);
        if (way == UNSEEN) { /* no thread has been at the port since */
            until(near, POLLIN);
            begin(near, bytes, sizeof bytes, &overlapped);
        } else if (way == SEEN) {
            CHECK(is_silent(port));
            CHECK_IS(receive_into(near, bytes, sizeof bytes, &received, &overlapped), 0);
            CHECK_IS(received, 2);
        }
        CHECK_ENDED(port, KEY, &overlapped, way == IN_PIECES ? 1 : 2);
        CHECK_IS(status_of(overlapped.Internal), SUCCEEDED_WELL);
        CHECK_IS(overlapped.InternalHigh, way == IN_PIECES ? 1 : 2);
        if (way == IN_PIECES) {
            send_all(far, text + 1, 1);
            begin(near, bytes + 1, sizeof bytes - 1, &overlapped);
            CHECK_ENDED(port, KEY, &overlapped, 1);
        }
        CHECK(memcmp(bytes, text, 2) == 0);
    }
    CHECK(is_silent(port));
    close_both(near, far);
}

/* No further data comes, so nothing but the first receive shows that there is more. */
static void what_does_not_fit_is_received_at_once(void)
{
    enum { ROOM = 4 };
    static const char TEXT[] = "abcdefghij";
    SOCKET near, far;
    int round;
    associated_pair(port, KEY, &near, &far);
    for (round = 0; round < 12; round++) {
        /* The last receive is filled exactly, or not. */
        int size = round % 2 ? 10 : 8, done = 0, waits = round / 2 % 2;
        char bytes[3 * ROOM] = {0};
        OVERLAPPED overlapped = fresh(NULL);
        DWORD received = UNTOUCHED;
        if (waits)
            CHECK_PENDING(receive_into(near, bytes, ROOM, NULL, &overlapped));
        send_all(far, TEXT, size);
        until(near, POLLIN);
        if (!waits)
            begin(near, bytes, ROOM, &overlapped);
        CHECK_ENDED(port, KEY, &overlapped, ROOM);
        for (done = ROOM; done < size; done += ROOM) {
            int rest = size - done < ROOM ? size - done : ROOM;
            CHECK_IS(receive_into(near, bytes + done, ROOM, &received, &overlapped), 0);
            CHECK_IS(received, rest);
            CHECK_ENDED(port, KEY, &overlapped, (DWORD)rest);
        }
        CHECK(memcmp(bytes, TEXT, (size_t)size) == 0);
        check_it_receives(port, near, far);
    }
    close_both(near, far);
}

/* The program has read by a usual call what was reported to the port. */
static void data_may_be_taken_by_a_usual_call(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    int round;
    pair_that_has_received(port, &near, &far);
    for (round = 0; round < 4; round++) {
        send_all(far, "a", 1);
        if (round % 2)
            CHECK(is_silent(port));
        receive_all(near, &byte, 1);
        CHECK_IS(byte, 'a');
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        CHECK(is_silent(port));
        CHECK_ENDED_BY_A_BYTE(far, port, KEY, &overlapped);
    }
    close_both(near, far);
}

/* ---- other receives --------------------------------------------------------------------------- */

static void several_receives_are_in_flight_now_and_then(void)
{
    enum { COUNT = 3, ROOM = 2 };
    SOCKET near, far;
    int round;
    associated_pair(port, KEY, &near, &far);
    for (round = 0; round < 12; round++) {
        char bytes[COUNT * ROOM] = {0}, text[COUNT * ROOM];
        OVERLAPPED overlapped[COUNT];
        int place, split = round % (COUNT * ROOM);
        for (place = 0; place < COUNT * ROOM; place++)
            text[place] = (char)('a' + (round + place) % 26);
        for (place = 0; place < COUNT; place++) {
            overlapped[place] = fresh(NULL);
            CHECK_PENDING(receive_into(near, bytes + place * ROOM, ROOM, NULL, &overlapped[place]));
        }
        /* In one piece, or in two parts that receives fill exactly. */
        split = split / ROOM * ROOM;
        if (split > 0)
            send_all(far, text, split);
        for (place = 0; place < split / ROOM; place++)
            CHECK_ENDED(port, KEY, &overlapped[place], ROOM);
        send_all(far, text + split, COUNT * ROOM - split);
        for (; place < COUNT; place++)
            CHECK_ENDED(port, KEY, &overlapped[place], ROOM);
        CHECK(memcmp(bytes, text, sizeof text) == 0);
        /* One at a time. */
        for (place = 0; place < round % 4; place++)
            check_it_receives(port, near, far);
    }
    close_both(near, far);
}

/* The kinds of receives that the task does not carry out. */
enum { PEEK, WHOLE, SEVERAL_BUFFERS, FROM, LARGE, EMPTY, WITH_EVENT, WITHOUT_PACKET, KINDS };

typedef struct Other {
    OVERLAPPED overlapped;
    HANDLE event;
    struct sockaddr_in from;
    int size;
    char bytes[70000];
} Other;

static void begin_other(int kind, SOCKET s, Other *other, int waits)
{
    int done;
    WSABUF buffers[2] = {buffer_of(other->bytes, 1), buffer_of(other->bytes + 1, 1)};
    DWORD flags = kind == PEEK ? MSG_PEEK : kind == WHOLE ? MSG_WAITALL : 0, count = kind == SEVERAL_BUFFERS ? 2 : 1;
    memset(other->bytes, 0, 4);
    other->overlapped = fresh(NULL);
    other->size = (int)sizeof other->from;
    if (kind == WITH_EVENT)
        other->overlapped.hEvent = other->event;
    if (kind == WITHOUT_PACKET)
        other->overlapped.hEvent = (HANDLE)((ULONG_PTR)other->event | 1);
    if (kind == LARGE)
        buffers[0] = buffer_of(other->bytes, sizeof other->bytes);
    if (kind == EMPTY)
        buffers[0] = buffer_of(NULL, 0);
    if (kind == FROM)
        done = WSARecvFrom(s, buffers, count, NULL, &flags, (struct sockaddr *)&other->from, &other->size,
                           &other->overlapped, NULL);
    else
        done = WSARecv(s, buffers, count, NULL, &flags, &other->overlapped, NULL);
    if (waits || done != 0) {
        CHECK_IS(done, SOCKET_ERROR);
        CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
    }
}

/* It has received an 'o', or has only seen it. */
static void check_other(int kind, SOCKET s, Other *other)
{
    DWORD count = UNTOUCHED;
    char byte = 0;
    if (kind == WITH_EVENT || kind == WITHOUT_PACKET)
        CHECK_IS(WaitForSingleObject(other->event, SOON), WAIT_OBJECT_0);
    if (kind == WITHOUT_PACKET) {
        CHECK(GetOverlappedResult((HANDLE)s, &other->overlapped, &count, FALSE));
        CHECK_IS(count, 1);
    } else {
        CHECK_ENDED(port, KEY, &other->overlapped, kind == EMPTY ? 0 : 1);
    }
    if (kind != EMPTY)
        CHECK_IS(other->bytes[0], 'o');
    if (kind == PEEK || kind == EMPTY) {
        OVERLAPPED overlapped = fresh(NULL);
        CHECK_IS(receive_into(s, &byte, 1, &count, &overlapped), 0);
        CHECK_ENDED(port, KEY, &overlapped, 1);
        CHECK_IS(byte, 'o');
    }
}

static void other_receives_may_come_in_between(void)
{
    static Other other;
    SOCKET near, far;
    int round;
    other.event = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK(other.event != NULL);
    associated_pair(port, KEY, &near, &far);
    for (round = 0; round < 2 * KINDS; round++) {
        int kind = round % KINDS, behind_one = round / KINDS % 2;
        char byte = 0;
        OVERLAPPED overlapped = fresh(NULL), last = fresh(NULL);
        /* Alone. */
        begin_other(kind, near, &other, 1);
        send_all(far, "o", 1);
        check_other(kind, near, &other);
        /* What it receives is there, and a thread of the port may have seen it. */
        send_all(far, "o", 1);
        until(near, POLLIN);
        if (behind_one)
            CHECK(is_silent(port));
        begin_other(kind, near, &other, 0);
        check_other(kind, near, &other);
        check_it_receives(port, near, far);
        /* Behind one that waits, and before another one. */
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        begin_other(kind, near, &other, 1);
        if (behind_one && kind != PEEK && kind != EMPTY) {
            char next = 0;
            CHECK_PENDING(receive_into(near, &next, 1, NULL, &last));
            send_all(far, "xo", 2);
            CHECK_ENDED(port, KEY, &overlapped, 1);
            /* One that is large, or has several buffers, takes all there is. */
            check_other(kind, near, &other);
            send_all(far, "y", 1);
            CHECK_ENDED(port, KEY, &last, 1);
            CHECK_IS(next, 'y');
        } else {
            send_all(far, "xo", 2);
            CHECK_ENDED(port, KEY, &overlapped, 1);
            check_other(kind, near, &other);
        }
        CHECK_IS(byte, 'x');
        check_it_receives(port, near, far);
    }
    close_both(near, far);
    CHECK(CloseHandle(other.event));
}

/* ---- cancels, closes and ends ------------------------------------------------------------------ */

static DWORD WINAPI cancel_own(LPVOID argument)
{
    CHECK(CancelIo((HANDLE)*(SOCKET *)argument));
    return 0;
}

static DWORD WINAPI begin_elsewhere(LPVOID argument)
{
    static char byte;
    static OVERLAPPED overlapped;
    CHECK_PENDING(receive_into(*(SOCKET *)argument, &byte, 1, NULL, &overlapped));
    *(SOCKET *)argument = (SOCKET)(ULONG_PTR)&overlapped;
    return 0;
}

static void in_another_thread(LPTHREAD_START_ROUTINE routine, SOCKET *s)
{
    HANDLE thread = CreateThread(NULL, 0, routine, s, 0, NULL);
    CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
    CHECK(CloseHandle(thread));
}

static void a_receive_that_waits_is_cancelled(void)
{
    SOCKET near, far, argument;
    char bytes[2] = {0};
    OVERLAPPED first = fresh(NULL), second = fresh(NULL);
    int round;
    pair_that_has_received(port, &near, &far);
    CHECK_FALSE(CancelIoEx((HANDLE)near, NULL), ERROR_NOT_FOUND);
    CHECK_FALSE(CancelIoEx((HANDLE)near, &first), ERROR_NOT_FOUND);
    for (round = 0; round < 6; round++) {
        CHECK_PENDING(receive_into(near, bytes, 1, NULL, &first));
        CHECK_FALSE(CancelIoEx((HANDLE)near, &second), ERROR_NOT_FOUND);
        in_another_thread(cancel_own, &near);
        CHECK(is_silent(port));
        CHECK_IS((DWORD)first.Internal, STATUS_PENDING);
        if (round % 3 == 2)
            CHECK(CancelIo((HANDLE)near));
        else
            CHECK(CancelIoEx((HANDLE)near, round % 3 ? &first : NULL));
        CHECK_FAILED(port, KEY, &first, 0, ERROR_OPERATION_ABORTED);
        CHECK_IS(status_of(first.Internal), CANCELLED);
        CHECK_FALSE(CancelIoEx((HANDLE)near, NULL), ERROR_NOT_FOUND);
        CHECK(is_silent(port));
        /* What comes is received by the next one. */
        if (round % 2) {
            send_all(far, "x", 1);
            until(near, POLLIN);
            begin(near, bytes, 1, &second);
            CHECK_ENDED(port, KEY, &second, 1);
        }
        check_it_receives(port, near, far);
    }
    /* One of another thread, which has ended. */
    argument = near;
    in_another_thread(begin_elsewhere, &argument);
    CHECK(CancelIo((HANDLE)near));
    CHECK(is_silent(port));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, (LPOVERLAPPED)(ULONG_PTR)argument);
    close_both(near, far);
}

static void one_of_two_receives_is_cancelled(void)
{
    SOCKET near, far;
    int round;
    pair_that_has_received(port, &near, &far);
    for (round = 0; round < 8; round++) {
        char bytes[2] = {0};
        OVERLAPPED both[2] = {fresh(NULL), fresh(NULL)};
        int which = round % 2;
        CHECK_PENDING(receive_into(near, &bytes[0], 1, NULL, &both[0]));
        CHECK_PENDING(receive_into(near, &bytes[1], 1, NULL, &both[1]));
        CHECK(CancelIoEx((HANDLE)near, &both[which]));
        CHECK_FAILED(port, KEY, &both[which], 0, ERROR_OPERATION_ABORTED);
        CHECK(is_silent(port));
        CHECK_ENDED_BY_A_BYTE(far, port, KEY, &both[1 - which]);
        CHECK_IS(bytes[1 - which], 'x');
        if (round / 2 % 2)
            check_it_receives(port, near, far);
    }
    /* All of them, in the order of their starts. */
    for (round = 0; round < 2; round++) {
        char bytes[2];
        OVERLAPPED both[2] = {fresh(NULL), fresh(NULL)};
        CHECK_PENDING(receive_into(near, &bytes[0], 1, NULL, &both[0]));
        CHECK_PENDING(receive_into(near, &bytes[1], 1, NULL, &both[1]));
        CHECK(round ? CancelIo((HANDLE)near) : CancelIoEx((HANDLE)near, NULL));
        CHECK_FAILED(port, KEY, &both[0], 0, ERROR_OPERATION_ABORTED);
        CHECK_FAILED(port, KEY, &both[1], 0, ERROR_OPERATION_ABORTED);
        check_it_receives(port, near, far);
    }
    close_both(near, far);
}

static void closesocket_ends_a_receive_that_waits(void)
{
    int round;
    for (round = 0; round < 8; round++) {
        SOCKET near, far;
        char bytes[2];
        OVERLAPPED both[2] = {fresh(NULL), fresh(NULL)};
        int place, count = round % 3;
        pair_that_has_received(port, &near, &far);
        for (place = 0; place < count; place++)
            CHECK_PENDING(receive_into(near, &bytes[place], 1, NULL, &both[place]));
        CHECK_IS(closesocket(near), 0);
        CHECK_SOCKET_ERROR(receive_into(near, bytes, 1, NULL, &both[1]), WSAENOTSOCK);
        for (place = 0; place < count; place++)
            CHECK_FAILED(port, KEY, &both[place], 0, closed_code());
        CHECK(is_silent(port));
        closesocket(far);
    }
}

/* Another connection has the number. A later call finds it out. */
static void a_receive_ends_when_its_socket_is_found_to_be_closed(void)
{
    int round;
    for (round = 0; round < 4; round++) {
        SOCKET near, far, next, peer;
        char byte;
        OVERLAPPED overlapped = fresh(NULL);
        int waits = round % 2;
        pair_that_has_received(port, &near, &far);
        if (waits)
            CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        tcp_pair(&next, &peer);
        CHECK_IS(cp_dup2((int)next, (int)near), near);
        CHECK_IS(closesocket(next), 0);
        CHECK(SetFileCompletionNotificationModes((HANDLE)near, 0));
        if (waits)
            CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_OPERATION_ABORTED);
        associate(near, port, KEY);
        check_it_receives(port, near, peer);
        check_it_receives(port, near, peer);
        close_both(near, peer);
        closesocket(far);
    }
}

static void the_own_shutdown_ends_a_receive_that_waits(void)
{
    int count;
    for (count = 0; count < 3; count++) {
        SOCKET near, far;
        char bytes[2];
        OVERLAPPED both[2] = {fresh(NULL), fresh(NULL)};
        int place;
        pair_that_has_received(port, &near, &far);
        for (place = 0; place < count; place++)
            CHECK_PENDING(receive_into(near, &bytes[place], 1, NULL, &both[place]));
        CHECK_IS(shutdown(near, SD_RECEIVE), 0);
        for (place = 0; place < count; place++)
            CHECK_ENDED(port, KEY, &both[place], 0);
        CHECK_SOCKET_ERROR(receive_into(near, bytes, 1, NULL, &both[0]), WSAESHUTDOWN);
        CHECK(is_silent(port));
        close_both(near, far);
    }
}

/* The peer's end comes with the last data, or after it. */
static void the_end_of_the_stream_follows_the_data(void)
{
    enum { COMES_LAST = 1, WAITS = 2, FITS = 4, IS_SEEN = 8, ALL = 16 };
    int way;
    for (way = 0; way < ALL; way++) {
        SOCKET near, far;
        char bytes[3];
        size_t room = way & FITS ? 3 : 2;
        OVERLAPPED overlapped = fresh(NULL);
        int round;
        pair_that_has_received(port, &near, &far);
        if (way & WAITS)
            CHECK_PENDING(receive_into(near, bytes, room, NULL, &overlapped));
        send_all(far, "ab", 2);
        if (!(way & COMES_LAST)) {
            CHECK_IS(shutdown(far, SD_SEND), 0);
            until(near, POLLRDHUP);
        }
        if (!(way & WAITS)) {
            if (way & IS_SEEN)
                CHECK(is_silent(port));
            begin(near, bytes, room, &overlapped);
        }
        CHECK_ENDED(port, KEY, &overlapped, 2);
        CHECK(memcmp(bytes, "ab", 2) == 0);
        if (way & COMES_LAST) {
            if (way & IS_SEEN)
                CHECK_PENDING(receive_into(near, bytes, room, NULL, &overlapped));
            CHECK_IS(shutdown(far, SD_SEND), 0);
            until(near, POLLRDHUP);
            if (!(way & IS_SEEN))
                begin(near, bytes, room, &overlapped);
            CHECK_ENDED(port, KEY, &overlapped, 0);
        }
        for (round = 0; round < 2; round++) {
            begin(near, bytes, room, &overlapped);
            CHECK_ENDED(port, KEY, &overlapped, 0);
        }
        /* The other direction continues. */
        CHECK_IS(send_from(near, "y", 1, NULL, &overlapped), 0);
        CHECK_ENDED(port, KEY, &overlapped, 1);
        receive_all(far, bytes, 1);
        close_both(near, far);
    }
}

static void a_reset_fails_a_receive(void)
{
    int round;
    for (round = 0; round < 6; round++) {
        SOCKET near, far;
        char byte;
        OVERLAPPED both[2] = {fresh(NULL), fresh(NULL)};
        DWORD bytes;
        int place, count = round % 3;
        pair_that_has_received(port, &near, &far);
        for (place = 0; place < count; place++)
            CHECK_PENDING(receive_into(near, &byte, 1, NULL, &both[place]));
        abort_connection(far);
        until(near, POLLERR);
        for (place = 0; place < count; place++) {
            CHECK_FAILED(port, KEY, &both[place], 0, ERROR_NETNAME_DELETED);
            CHECK_IS(status_of(both[place].Internal), CONNECTION_RESET);
        }
        if (round >= 3)
            CHECK(is_silent(port));
        both[0] = fresh(NULL);
        if (receive_into(near, &byte, 1, NULL, &both[0]) != 0 && WSAGetLastError() == WSA_IO_PENDING)
            CHECK_FAILED(port, KEY, &both[0], 0, ERROR_NETNAME_DELETED);
        else
            CHECK_IS(WSAGetLastError(), WSAECONNRESET);
        CHECK_SOCKET_ERROR(receive_into(near, &byte, 1, &bytes, &both[0]), WSAECONNRESET);
        CHECK(is_silent(port));
        closesocket(near);
    }
}

/* A receive stops at the mark of urgent data, and the next one receives what follows it. */
static void urgent_data_comes_while_a_receive_waits(void)
{
    SOCKET near, far;
    char bytes[4] = {0}, urgent = 0;
    OVERLAPPED overlapped = fresh(NULL);
    int round;
    for (round = 0; round < 6; round++) {
        int waits = round % 2;
        pair_that_has_received(port, &near, &far);
        if (waits)
            CHECK_PENDING(receive_into(near, bytes, sizeof bytes, NULL, &overlapped));
        send_all(far, "ab", 2);
        CHECK_IS(send(far, "!", 1, MSG_OOB), 1);
        send_all(far, "cd", 2);
        until(near, POLLPRI);
        if (!waits)
            begin(near, bytes, sizeof bytes, &overlapped);
        CHECK_ENDED(port, KEY, &overlapped, 2);
        CHECK(memcmp(bytes, "ab", 2) == 0);
        CHECK_IS(recv(near, &urgent, 1, MSG_OOB), 1);
        CHECK_IS(urgent, '!');
        begin(near, bytes, sizeof bytes, &overlapped);
        CHECK_ENDED(port, KEY, &overlapped, 2);
        CHECK(memcmp(bytes, "cd", 2) == 0);
        check_it_receives(port, near, far);
        /* Urgent data alone ends no receive. */
        CHECK_PENDING(receive_into(near, bytes, sizeof bytes, NULL, &overlapped));
        CHECK_IS(send(far, "!", 1, MSG_OOB), 1);
        CHECK(is_silent(port));
        send_all(far, "ef", 2);
        CHECK_ENDED(port, KEY, &overlapped, 2);
        CHECK(memcmp(bytes, "ef", 2) == 0);
        check_it_receives(port, near, far);
        close_both(near, far);
    }
}

/* ---- registrations ----------------------------------------------------------------------------- */

static void a_registration_may_come_and_go(void)
{
    static const unsigned TRIGGERS[] = {LEVEL_ONCE, LEVEL_ON, EDGE_ON};
    SOCKET near, far;
    int round;
    pair_that_has_received(port, &near, &far);
    for (round = 0; round < 12; round++) {
        unsigned trigger = TRIGGERS[round % 3];
        int waits = round / 3 % 2;
        char byte = 0;
        OVERLAPPED overlapped = fresh(NULL);
        if (waits)
            CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        CHECK_IS(enable(port, near, WATCHED, FILTER_IN, trigger), ERROR_SUCCESS);
        CHECK(is_silent(port));
        if (waits) {
            /* What a receive takes is not reported. An edge is that of the data, also if a receive takes it. */
            send_all(far, "x", 1);
            CHECK_ENDED(port, KEY, &overlapped, 1);
            CHECK(is_silent(port));
        }
        send_all(far, "a", 1);
        CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
        receive_all(near, &byte, 1);
        CHECK_IS(byte, 'a');
        CHECK(is_silent(port));
        if (trigger != LEVEL_ONCE) {
            send_all(far, "b", 1);
            CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
            CHECK_IS(receive_into(near, &byte, 1, NULL, &overlapped), 0);
            CHECK_ENDED(port, KEY, &overlapped, 1);
            CHECK(is_silent(port));
        }
        if (round / 6) {
            check_it_receives(port, near, far);
            if (trigger == LEVEL_ONCE)
                CHECK_IS(enable(port, near, WATCHED, FILTER_IN, trigger), ERROR_SUCCESS);
            send_all(far, "c", 1);
            CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
            receive_all(near, &byte, 1);
        }
        END_REGISTRATION(port, near, WATCHED);
        check_it_receives(port, near, far);
        check_it_receives(port, near, far);
    }
    close_both(near, far);
}

/* It reports what came before it, which a thread of the port may have seen. */
static void a_registration_reports_what_was_there(void)
{
    static const unsigned TRIGGERS[] = {LEVEL_ONCE, LEVEL_ON, EDGE_ON};
    SOCKET near, far;
    int round;
    pair_that_has_received(port, &near, &far);
    for (round = 0; round < 6; round++) {
        char byte;
        send_all(far, "a", 1);
        until(near, POLLIN);
        if (round / 3)
            CHECK(is_silent(port));
        CHECK_IS(enable(port, near, WATCHED, FILTER_IN, TRIGGERS[round % 3]), ERROR_SUCCESS);
        CHECK_NEXT(port, WATCHED, SOCK_NOTIFY_EVENT_IN);
        receive_all(near, &byte, 1);
        END_REGISTRATION(port, near, WATCHED);
        check_it_receives(port, near, far);
    }
    close_both(near, far);
}

/* A receive waits while the registration ends. */
static void a_receive_outlives_a_registration(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED first = fresh(NULL), second = fresh(NULL);
    int round;
    pair_that_has_received(port, &near, &far);
    for (round = 0; round < 4; round++) {
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &first));
        CHECK_IS(enable(port, near, WATCHED, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
        if (round % 2)
            CHECK_PENDING(receive_into(near, &byte, 1, NULL, &second));
        END_REGISTRATION(port, near, WATCHED);
        CHECK(is_silent(port));
        CHECK_ENDED_BY_A_BYTE(far, port, KEY, &first);
        if (round % 2)
            CHECK_ENDED_BY_A_BYTE(far, port, KEY, &second);
        check_it_receives(port, near, far);
    }
    close_both(near, far);
}

/* An idle socket is registered on another port than that of its operations. */
static void an_idle_socket_is_registered_on_another_port(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    HANDLE other = new_port(1);
    pair_that_has_received(port, &near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_IS(enable(other, near, WATCHED, FILTER_IN, LEVEL_ON), ERROR_INVALID_PARAMETER);
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &overlapped);
    CHECK_IS(enable(other, near, WATCHED, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    send_all(far, "x", 1);
    CHECK_NEXT(other, WATCHED, SOCK_NOTIFY_EVENT_IN);
    receive_all(near, &byte, 1);
    CHECK(is_silent(other));
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "x", 1);
    until_ended(&overlapped);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    END_REGISTRATION(other, near, WATCHED);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    send_all(far, "x", 1);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    close_both(near, far);
    CHECK(CloseHandle(other));
}

/* ---- packets, ports and the driver -------------------------------------------------------------- */

static void what_succeeds_at_once_may_make_no_packet(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD received = UNTOUCHED;
    int round;
    pair_that_has_received(port, &near, &far);
    for (round = 0; round < 3; round++) {
        if (round == 1)
            CHECK(SetFileCompletionNotificationModes((HANDLE)near, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS));
        /* What waits makes a packet, and what succeeds immediately makes one if it is not skipped. */
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        send_all(far, "ab", 2);
        CHECK_ENDED(port, KEY, &overlapped, 1);
        CHECK_IS(byte, 'a');
        CHECK_IS(receive_into(near, &byte, 1, &received, &overlapped), 0);
        CHECK_IS(received, 1);
        CHECK_IS(byte, 'b');
        if (round == 0)
            CHECK_ENDED(port, KEY, &overlapped, 1);
        CHECK(is_silent(port));
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
        CHECK_ENDED_BY_A_BYTE(far, port, KEY, &overlapped);
    }
    close_both(near, far);
}

/* Nobody waits at the port: the driver carries the receives out, also after it has gone to sleep. */
static void the_driver_carries_receives_out(void)
{
    SOCKET near, far;
    char bytes[2];
    HANDLE own = new_port(1);
    DWORD count = UNTOUCHED;
    ULONG_PTR key;
    LPOVERLAPPED which;
    int round;
    associated_pair(own, KEY, &near, &far);
    for (round = 0; round < 6; round++) {
        OVERLAPPED overlapped = fresh(NULL);
        ULONGLONG began;
        if (round % 3 == 1) /* longer than the driver looks, with nothing in flight */
            CHECK_FALSE(GetQueuedCompletionStatus(own, &count, &key, &which, 60), WAIT_TIMEOUT);
        CHECK_PENDING(receive_into(near, bytes, sizeof bytes, NULL, &overlapped));
        if (round % 3 == 2) /* and with a receive in flight */
            CHECK_FALSE(GetQueuedCompletionStatus(own, &count, &key, &which, 60), WAIT_TIMEOUT);
        send_all(far, "x", 1);
        began = GetTickCount64();
        if (round % 2) {
            CHECK(GetOverlappedResult((HANDLE)near, &overlapped, &count, TRUE));
            CHECK_IS(count, 1);
        } else {
            until_ended(&overlapped);
        }
        CHECK(GetTickCount64() - began < SOON / 2);
        CHECK_ENDED(own, KEY, &overlapped, 1);
    }
    close_both(near, far);
    CHECK(CloseHandle(own));
}

/* What was there before a receive is carried out, too, though nobody has been at the port since. */
static void the_driver_finds_what_was_there(void)
{
    SOCKET near, far;
    char byte;
    HANDLE own = new_port(1);
    OVERLAPPED overlapped;
    int round;
    pair_that_has_received(own, &near, &far);
    for (round = 0; round < 20; round++) {
        send_all(far, "x", 1);
        until(near, POLLIN);
        begin(near, &byte, 1, &overlapped);
        until_ended(&overlapped);
        CHECK_ENDED(own, KEY, &overlapped, 1);
    }
    close_both(near, far);
    CHECK(CloseHandle(own));
}

/* How often the driver has gone to sleep. */
static long sleeps_of_the_driver(void)
{
    DIR *threads = opendir("/proc/self/task");
    const struct dirent *thread;
    long sleeps = -1;
    CHECK(threads != NULL);
    while ((thread = readdir(threads)) != NULL) {
        char path[sizeof thread->d_name + 32], line[128];
        FILE *file;
        int is_driver = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", thread->d_name);
        file = atol(thread->d_name) > 0 ? fopen(path, "r") : NULL;
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            is_driver |= strcmp(line, "Name:\tcp-driver\n") == 0;
            if (is_driver)
                sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps);
        }
        if (file != NULL)
            CHECK_IS(fclose(file), 0);
    }
    CHECK_IS(closedir(threads), 0);
    CHECK(sleeps >= 0);
    return sleeps;
}

/* It does not look at a port at which no receive waits any more, however the receives have ended. */
static void the_driver_sleeps_when_no_receive_waits(void)
{
    enum { RECEIVED, CANCELLED_ALONE, CANCELLED_FIRST, CLOSED, ENDINGS };
    int ending;
    for (ending = 0; ending < ENDINGS; ending++) {
        SOCKET near, far;
        char bytes[2];
        HANDLE own = new_port(1), idle = new_port(1);
        OVERLAPPED both[2] = {fresh(NULL), fresh(NULL)};
        ULONGLONG began = GetTickCount64();
        long before;
        pair_that_has_received(own, &near, &far);
        CHECK_PENDING(receive_into(near, &bytes[0], 1, NULL, &both[0]));
        if (ending == CANCELLED_FIRST) {
            CHECK_PENDING(receive_into(near, &bytes[1], 1, NULL, &both[1]));
            CHECK(CancelIoEx((HANDLE)near, &both[0]));
            send_all(far, "x", 1);
            until_ended(&both[1]);
        } else if (ending == CANCELLED_ALONE) {
            CHECK(CancelIoEx((HANDLE)near, NULL));
        } else if (ending == CLOSED) {
            CHECK_IS(closesocket(near), 0);
        } else {
            send_all(far, "x", 1);
        }
        until_ended(&both[0]);
        do {
            CHECK(GetTickCount64() - began < SOON);
            before = sleeps_of_the_driver();
            CHECK(is_silent(idle));
        } while (sleeps_of_the_driver() != before);
        if (ending != CLOSED)
            closesocket(near);
        closesocket(far);
        CHECK(CloseHandle(own));
        CHECK(CloseHandle(idle));
    }
}

/* A thread that never waits takes packets, and so carries receives out. */
static void a_thread_that_does_not_wait_takes_packets(void)
{
    SOCKET near, far;
    char byte;
    HANDLE own = new_port(1);
    OVERLAPPED overlapped;
    int round;
    pair_that_has_received(own, &near, &far);
    for (round = 0; round < 20; round++) {
        ULONGLONG began = GetTickCount64();
        DWORD count = UNTOUCHED;
        ULONG_PTR key = 0;
        LPOVERLAPPED which = NULL;
        begin(near, &byte, 1, &overlapped);
        send_all(far, "x", 1);
        while (!GetQueuedCompletionStatus(own, &count, &key, &which, 0)) {
            CHECK_IS(GetLastError(), WAIT_TIMEOUT);
            CHECK(GetTickCount64() - began < SOON);
        }
        CHECK(which == &overlapped);
        CHECK_IS(count, 1);
    }
    close_both(near, far);
    CHECK(CloseHandle(own));
}

/* Their port is closed while receives wait, or while none does. Then the sockets have another port. */
static void a_port_is_closed_and_another_one_follows(void)
{
    int round;
    for (round = 0; round < 6; round++) {
        SOCKET near, far;
        char bytes[2];
        HANDLE own = new_port(1), next;
        OVERLAPPED both[2] = {fresh(NULL), fresh(NULL)}, alone = fresh(NULL);
        DWORD received = UNTOUCHED;
        int place, count = round % 3;
        pair_that_has_received(own, &near, &far);
        for (place = 0; place < count; place++)
            CHECK_PENDING(receive_into(near, &bytes[place], 1, NULL, &both[place]));
        CHECK(CloseHandle(own));
        for (place = 0; place < count; place++) {
            until_ended(&both[place]);
            CHECK_IS(status_of(both[place].Internal), CANCELLED);
        }
        if (round >= 3) {
            /* Without a port in between. */
            CHECK_PENDING(receive_into(near, bytes, 1, NULL, &alone));
            send_all(far, "x", 1);
            CHECK(GetOverlappedResult((HANDLE)near, &alone, &received, TRUE));
            CHECK_IS(received, 1);
        }
        next = new_port(1);
        associate(near, next, KEY);
        check_it_receives(next, near, far);
        check_it_receives(next, near, far);
        close_both(near, far);
        CHECK(CloseHandle(next));
    }
}

typedef struct Server {
    SOCKET near;
    volatile LONG received, is_over;
} Server;

/* Receives until the socket is closed, and looks for the ends itself. */
static DWORD WINAPI receive_without_packets(LPVOID argument)
{
    Server *server = (Server *)argument;
    while (!server->is_over) {
        OVERLAPPED overlapped = fresh(NULL);
        char bytes[8];
        if (receive_into(server->near, bytes, sizeof bytes, NULL, &overlapped) != 0 &&
            WSAGetLastError() != WSA_IO_PENDING) {
            /* The socket is closed, or its port is just being closed and still has the socket. */
            CHECK(WSAGetLastError() == WSAENOTSOCK || WSAGetLastError() == ERROR_INVALID_PARAMETER);
            continue;
        }
        until_ended(&overlapped);
        if (status_of(overlapped.Internal) == SUCCEEDED_WELL)
            InterlockedExchange(&server->received, server->received + (LONG)overlapped.InternalHigh);
        else
            CHECK_IS(status_of(overlapped.Internal), CANCELLED);
    }
    return 0;
}

/* Then they continue without a port. None is lost, and no byte. */
static void a_port_is_closed_while_receives_begin(void)
{
    int round, rounds = is_slow() ? 5 : tries(25, 500);
    for (round = 0; round < rounds; round++) {
        Server server;
        SOCKET far;
        HANDLE own = new_port(1), thread;
        LONG sent;
        memset(&server, 0, sizeof server);
        associated_pair(own, KEY, &server.near, &far);
        thread = CreateThread(NULL, 0, receive_without_packets, &server, 0, NULL);
        for (sent = 1; sent <= 12; sent++) {
            ULONGLONG began = GetTickCount64();
            int turns;
            send_all(far, "x", 1);
            for (turns = 0; sent == 6 && turns < round % 8; turns++)
                SwitchToThread();
            if (sent == 6)
                CHECK(CloseHandle(own));
            while (server.received < sent) {
                DWORD count;
                ULONG_PTR key;
                LPOVERLAPPED which;
                CHECK(GetTickCount64() - began < SOON);
                if (sent < 6)
                    (void)GetQueuedCompletionStatus(own, &count, &key, &which, 0);
                else
                    SwitchToThread();
            }
            CHECK_IS(server.received, sent);
        }
        InterlockedExchange(&server.is_over, 1);
        CHECK_IS(closesocket(server.near), 0);
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(CloseHandle(thread));
        closesocket(far);
    }
}

static void a_socket_is_used_again(void)
{
    enum { BLOCK = sizeof(struct sockaddr_in) + 16, ROUNDS = 4 };
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), s = tcp_socket();
    char place[2 * BLOCK], byte;
    int round;
    associate(listener, port, KEY + 1);
    associate(s, port, KEY);
    for (round = 0; round < ROUNDS; round++) {
        SOCKET client = tcp_connected_to(&address);
        OVERLAPPED overlapped = fresh(NULL), waiting = fresh(NULL);
        CHECK_BEGINS(AcceptEx(listener, s, place, 0, BLOCK, BLOCK, NULL, &overlapped));
        CHECK_ENDED(port, KEY + 1, &overlapped, 0);
        check_it_receives(port, s, client);
        check_it_receives(port, s, client);
        if (round % 2)
            CHECK_PENDING(receive_into(s, &byte, 1, NULL, &waiting));
        CHECK_BEGINS(DisconnectEx(s, &overlapped, TF_REUSE_SOCKET, 0));
        if (round % 2) {
            DWORD count = UNTOUCHED;
            ULONG_PTR key = 0;
            LPOVERLAPPED which = NULL;
            int taken, ended = 0;
            for (taken = 0; taken < 2; taken++) {
                (void)GetQueuedCompletionStatus(port, &count, &key, &which, SOON);
                CHECK_IS(key, KEY);
                CHECK_IS(count, 0);
                ended |= which == &overlapped ? 1 : which == &waiting ? 2 : 4;
            }
            CHECK_IS(ended, 3);
            CHECK(waiting.Internal != STATUS_PENDING);
        } else {
            CHECK_ENDED(port, KEY, &overlapped, 0);
        }
        CHECK(is_silent(port));
        closesocket(client);
    }
    closesocket(s);
    closesocket(listener);
}

/* ---- many threads ------------------------------------------------------------------------------ */

enum { CONNECTIONS = 8, TAKERS = 2, SENDERS = 2, LENGTH = 150000, MOST = 70000, DEPTH = 2 };

typedef struct Receive {
    OVERLAPPED overlapped;
    struct Connection *connection;
    int has_ended;
    DWORD count, code;
    char bytes[MOST];
} Receive;

typedef struct Connection {
    CRITICAL_SECTION lock;
    SOCKET near, far;
    unsigned name, seed;
    int skips, is_over;
    volatile LONG is_closed;
    /* The first of `in_flight` receives, in a ring. */
    int first, in_flight;
    volatile LONG seen;
    Receive receives[DEPTH];
} Connection;

static Connection connections[CONNECTIONS];
static volatile LONG finished, cancelled;
static HANDLE crowded;

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* The bytes of each stream. */
static char byte_at(unsigned name, LONG place)
{
    return (char)(((unsigned)place * 2654435761u >> 13) + name);
}

/* The receives that have ended, in the order of their starts. */
static void look_at_ends(Connection *it)
{
    while (it->in_flight > 0 && it->receives[it->first].has_ended) {
        Receive *receive = &it->receives[it->first];
        DWORD place;
        if (receive->code == 0 && receive->count == 0) {
            CHECK_IS(it->seen, LENGTH);
            it->is_over = 1;
        }
        if (receive->code != 0) {
            CHECK_IS(receive->code, ERROR_OPERATION_ABORTED);
            CHECK_IS(receive->count, 0);
            InterlockedIncrement(&cancelled);
        }
        for (place = 0; place < receive->count; place++)
            CHECK_IS(receive->bytes[place], byte_at(it->name, it->seen + (LONG)place));
        InterlockedExchange(&it->seen, it->seen + (LONG)receive->count);
        it->first = (it->first + 1) % DEPTH;
        it->in_flight--;
    }
}

/* Begins receives; the connection is locked. */
static void begin_receives(Connection *it)
{
    int depth = next_random(&it->seed) % 4 == 0 ? DEPTH : 1;
    while (!it->is_over && it->in_flight < depth) {
        static const size_t SIZES[] = {1, 7, 64, 1000, 4096, 65536, 65537, MOST};
        Receive *receive = &it->receives[(it->first + it->in_flight) % DEPTH];
        DWORD received = 0;
        receive->overlapped = fresh(NULL);
        receive->has_ended = 0;
        it->in_flight++;
        if (receive_into(it->near, receive->bytes, SIZES[next_random(&it->seed) % 8], &received,
                         &receive->overlapped) == 0) {
            if (it->skips) {
                receive->has_ended = 1;
                receive->count = received;
                receive->code = 0;
                look_at_ends(it);
            }
        } else if (WSAGetLastError() != WSA_IO_PENDING) {
            CHECK_IS(WSAGetLastError(), WSAENOTSOCK);
            CHECK(it->is_closed);
            it->in_flight--;
            it->is_over = 1;
        }
    }
    if (it->is_over && it->in_flight == 0)
        InterlockedIncrement(&finished);
}

/* Cancels a receive, registers a socket, or closes one. */
static void disturb_one(unsigned *seed)
{
    Connection *it = &connections[next_random(seed) % CONNECTIONS];
    unsigned what = next_random(seed) % 16;
    if (it->is_closed)
        return;
    if (what < 4)
        (void)CancelIoEx((HANDLE)it->near, NULL);
    else if (what < 8)
        (void)CancelIoEx((HANDLE)it->near, &it->receives[what % DEPTH].overlapped);
    else if (what < 10)
        (void)enable(crowded, it->near, WATCHED, FILTER_IN, LEVEL_ONCE);
    else if (what < 14)
        (void)unregister(crowded, it->near);
    else if (it->name % 4 == 3 && it->seen > (LONG)(LENGTH / 8 * (it->name / 4 + 2)) &&
             InterlockedExchange(&it->is_closed, 1) == 0)
        CHECK_IS(closesocket(it->near), 0);
}

static DWORD WINAPI take_ends(LPVOID argument)
{
    unsigned seed = *(unsigned *)argument + 1;
    while (finished < CONNECTIONS) {
        DWORD count = UNTOUCHED;
        ULONG_PTR key;
        LPOVERLAPPED which = NULL;
        BOOL is_good = GetQueuedCompletionStatus(crowded, &count, &key, &which, 20);
        DWORD code = is_good ? 0 : GetLastError();
        Receive *receive = (Receive *)which;
        Connection *it;
        if (receive == NULL) { /* time has passed, or a registration reports */
            CHECK(is_good || code == WAIT_TIMEOUT);
            continue;
        }
        it = receive->connection;
        EnterCriticalSection(&it->lock);
        CHECK(!receive->has_ended && key == KEY);
        receive->has_ended = 1;
        receive->count = count;
        receive->code = code;
        look_at_ends(it);
        begin_receives(it);
        LeaveCriticalSection(&it->lock);
        if (next_random(&seed) % 8 == 0)
            disturb_one(&seed);
    }
    return 0;
}

typedef struct Sender {
    unsigned own, seed;
} Sender;

/* Sends the streams of every other connection in pieces, and often waits until a piece has been received. */
static DWORD WINAPI send_streams(LPVOID argument)
{
    static const int SIZES[] = {1, 3, 50, 700, 4096, 9000, 65536, 100000};
    Sender *sender = (Sender *)argument;
    unsigned own = sender->own, seed = sender->seed + own + 77;
    LONG sent[CONNECTIONS] = {0};
    int left = CONNECTIONS / SENDERS;
    char *piece = (char *)malloc(LENGTH);
    CHECK(piece != NULL);
    while (left > 0) {
        Connection *it = &connections[next_random(&seed) % (CONNECTIONS / SENDERS) * SENDERS + own];
        LONG size = SIZES[next_random(&seed) % 8], place;
        ULONGLONG began = GetTickCount64();
        if (sent[it->name] == LENGTH + 1)
            continue;
        size = size < LENGTH - sent[it->name] ? size : LENGTH - sent[it->name];
        for (place = 0; place < size; place++)
            piece[place] = byte_at(it->name, sent[it->name] + place);
        place = 0;
        while (place < size && !it->is_closed) {
            int done = (int)send(it->far, piece + place, (int)(size - place), 0);
            CHECK(done > 0 || it->is_closed);
            place += done > 0 ? done : 0;
        }
        sent[it->name] += size;
        if (next_random(&seed) % 4 == 0)
            disturb_one(&seed);
        if (next_random(&seed) % 2)
            while (it->seen < sent[it->name] && !it->is_closed) {
                CHECK(GetTickCount64() - began < SOON);
                SwitchToThread();
            }
        if (sent[it->name] == LENGTH || it->is_closed) {
            if (!it->is_closed)
                CHECK(shutdown(it->far, SD_SEND) == 0 || it->is_closed);
            sent[it->name] = LENGTH + 1;
            left--;
        }
    }
    free(piece);
    return 0;
}

static DWORD WINAPI disturb(LPVOID argument)
{
    unsigned seed = *(unsigned *)argument + 3;
    while (finished < CONNECTIONS) {
        unsigned turns = next_random(&seed) % 50;
        disturb_one(&seed);
        while (turns-- > 0)
            SwitchToThread();
    }
    return 0;
}

static void streams_stay_whole(unsigned seed)
{
    Sender senders[SENDERS];
    HANDLE threads[TAKERS + SENDERS + 1];
    int place, count = 0;
    crowded = new_port(2);
    finished = 0;
    for (place = 0; place < CONNECTIONS; place++) {
        Connection *it = &connections[place];
        int depth;
        memset(it, 0, sizeof *it);
        InitializeCriticalSection(&it->lock);
        it->name = (unsigned)place;
        it->seed = (unsigned)place * 31 + seed;
        it->skips = place / 2 % 2;
        associated_pair(crowded, KEY, &it->near, &it->far);
        if (it->skips)
            CHECK(SetFileCompletionNotificationModes((HANDLE)it->near, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS));
        for (depth = 0; depth < DEPTH; depth++)
            it->receives[depth].connection = it;
    }
    for (place = 0; place < CONNECTIONS; place++) {
        EnterCriticalSection(&connections[place].lock);
        begin_receives(&connections[place]);
        LeaveCriticalSection(&connections[place].lock);
    }
    for (place = 0; place < TAKERS; place++)
        threads[count++] = CreateThread(NULL, 0, take_ends, &seed, 0, NULL);
    for (place = 0; place < SENDERS; place++) {
        senders[place].own = (unsigned)place;
        senders[place].seed = seed;
        threads[count++] = CreateThread(NULL, 0, send_streams, &senders[place], 0, NULL);
    }
    threads[count++] = CreateThread(NULL, 0, disturb, &seed, 0, NULL);
    CHECK_IS(WaitForMultipleObjects((DWORD)count, threads, TRUE, SOON), WAIT_OBJECT_0);
    CHECK_IS(finished, CONNECTIONS);
    for (place = 0; place < count; place++)
        CHECK(CloseHandle(threads[place]));
    for (place = 0; place < CONNECTIONS; place++) {
        Connection *it = &connections[place];
        CHECK(it->is_closed || it->seen == LENGTH);
        if (!it->is_closed)
            closesocket(it->near);
        closesocket(it->far);
        DeleteCriticalSection(&it->lock);
    }
    CHECK(CloseHandle(crowded));
}

static void streams_stay_whole_in_a_crowd(void)
{
    int round, rounds = is_slow() ? 2 : tries(12, 200);
    cancelled = 0;
    for (round = 0; round < rounds; round++)
        streams_stay_whole((unsigned)round * 1000u);
    CHECK(cancelled > 0);
}

int main(void)
{
    start();
    port = new_port(2);
    data_is_received_whenever_it_comes();
    what_does_not_fit_is_received_at_once();
    data_may_be_taken_by_a_usual_call();
    several_receives_are_in_flight_now_and_then();
    other_receives_may_come_in_between();
    a_receive_that_waits_is_cancelled();
    one_of_two_receives_is_cancelled();
    closesocket_ends_a_receive_that_waits();
    a_receive_ends_when_its_socket_is_found_to_be_closed();
    the_own_shutdown_ends_a_receive_that_waits();
    the_end_of_the_stream_follows_the_data();
    a_reset_fails_a_receive();
    urgent_data_comes_while_a_receive_waits();
    a_registration_may_come_and_go();
    a_registration_reports_what_was_there();
    a_receive_outlives_a_registration();
    an_idle_socket_is_registered_on_another_port();
    what_succeeds_at_once_may_make_no_packet();
    the_driver_carries_receives_out();
    the_driver_finds_what_was_there();
    the_driver_sleeps_when_no_receive_waits();
    a_thread_that_does_not_wait_takes_packets();
    a_port_is_closed_and_another_one_follows();
    a_port_is_closed_while_receives_begin();
    a_socket_is_used_again();
    streams_stay_whole_in_a_crowd();
    CHECK(CloseHandle(port));
    return finish();
}
