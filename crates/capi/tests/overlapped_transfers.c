/* WSARecv, WSASend, WSARecvFrom and WSASendTo with an OVERLAPPED, on sockets associated with a
 * port: which operations start, which end immediately or later, the content of the packets, and the
 * error for each bad argument. */
#include <winsock2.h>
#include <mswsock.h>

#include "check.h"
#include "overlapped.h"

#define KEY 0x1234567890u

static HANDLE port;

static void a_receive_that_waits_completes_by_a_packet(void)
{
    SOCKET near, far;
    char bytes[16] = {0};
    OVERLAPPED overlapped = fresh(NULL);
    DWORD received = UNTOUCHED;
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, bytes, sizeof bytes, &received, &overlapped));
    CHECK_IS((DWORD)overlapped.Internal, STATUS_PENDING);
    CHECK(!HasOverlappedIoCompleted(&overlapped));
    CHECK_IS(received, UNTOUCHED);
    send_all(far, "hello", 5);
    CHECK_ENDED(port, KEY, &overlapped, 5);
    CHECK_IS(status_of(overlapped.Internal), SUCCEEDED_WELL);
    CHECK_IS(overlapped.InternalHigh, 5);
    CHECK(memcmp(bytes, "hello", 6) == 0);
    close_both(near, far);
}

static void what_is_there_is_received_at_once_and_a_packet_comes_all_the_same(void)
{
    SOCKET near, far;
    char bytes[16] = {0};
    OVERLAPPED overlapped = fresh(NULL);
    DWORD received = UNTOUCHED;
    associated_pair(port, KEY, &near, &far);
    send_all(far, "hello", 5);
    until(near, POLLIN);
    CHECK_IS(receive_into(near, bytes, sizeof bytes, &received, &overlapped), 0);
    CHECK_IS(received, 5);
    CHECK_IS(status_of(overlapped.Internal), SUCCEEDED_WELL);
    CHECK_IS(overlapped.InternalHigh, 5);
    CHECK_ENDED(port, KEY, &overlapped, 5);
    CHECK(is_silent(port));
    close_both(near, far);
}

static void a_send_goes_out_at_once_and_waits_for_room(void)
{
    enum { MUCH = 8 * 1024 * 1024 };
    SOCKET near, far;
    char *much = (char *)malloc(MUCH), *back = (char *)malloc(MUCH);
    OVERLAPPED first = fresh(NULL), second = fresh(NULL), third = fresh(NULL);
    DWORD sent = UNTOUCHED;
    int place;
    CHECK(much && back);
    for (place = 0; place < MUCH; place++)
        much[place] = (char)(place * 7 >> 3);
    associated_pair(port, KEY, &near, &far);
    CHECK_IS(send_from(near, "hello", 5, &sent, &first), 0);
    CHECK_IS(sent, 5);
    CHECK_ENDED(port, KEY, &first, 5);
    /* More than the buffers hold: all of it is sent, and nothing of the next one in between.
     * Windows may accept it anyway. */
#define CHECK_TAKEN_OR_PENDING(call) \
    CHECK((call) == 0 ? !HAS_SOCKET_CALLS : WSAGetLastError() == WSA_IO_PENDING)
    CHECK_TAKEN_OR_PENDING(send_from(near, much, MUCH, NULL, &second));
    CHECK_TAKEN_OR_PENDING(send_from(near, "world", 5, NULL, &third));
#undef CHECK_TAKEN_OR_PENDING
    receive_all(far, back, 5);
    CHECK(memcmp(back, "hello", 5) == 0);
    receive_all(far, back, MUCH);
    CHECK(memcmp(back, much, MUCH) == 0);
    receive_all(far, back, 5);
    CHECK(memcmp(back, "world", 5) == 0);
    CHECK_ENDED(port, KEY, &second, MUCH);
    CHECK_ENDED(port, KEY, &third, 5);
    close_both(near, far);
    free(much);
    free(back);
}

#if HAS_SOCKET_CALLS
/* The peer gets all data that was being sent, and then the end of the stream. */
static void a_shutdown_follows_the_sends_in_flight(void)
{
    enum { MUCH = 8 * 1024 * 1024 };
    char *much = (char *)calloc(1, MUCH), *back = (char *)malloc(MUCH);
    int way;
    CHECK(much && back);
    for (way = 0; way < 4; way++) {
        SOCKET near, far;
        OVERLAPPED receive = fresh(NULL), first = fresh(NULL), second = fresh(NULL), late = fresh(NULL);
        const int is_both = way & 1, is_cancelled = way & 2;
        size_t arrived = 0;
        ssize_t part;
        DWORD count = 0, flags = 0;
        char byte;
        associated_pair(port, KEY, &near, &far);
        if (!is_both)
            CHECK_PENDING(receive_into(near, &byte, 1, NULL, &receive));
        CHECK_PENDING(send_from(near, much, MUCH, NULL, &first));
        CHECK_PENDING(send_from(near, much, MUCH, NULL, &second));
        CHECK_IS(shutdown(near, is_both ? SD_BOTH : SD_SEND), 0);
        CHECK_PENDING(send_from(near, "late", 4, NULL, &late));
        if (is_both)
            CHECK_SOCKET_ERROR(receive_into(near, &byte, 1, NULL, &receive), WSAESHUTDOWN);
        if (is_cancelled) {
            CHECK_IS(CancelIoEx((HANDLE)near, &second), TRUE);
            CHECK_FAILED(port, KEY, &second, 0, ERROR_OPERATION_ABORTED);
        }
        while ((part = recv(far, back, MUCH, 0)) > 0)
            arrived += (size_t)part;
        CHECK_IS(part, 0);
        CHECK_IS(arrived, is_cancelled ? MUCH : 2 * MUCH);
        CHECK_ENDED(port, KEY, &first, MUCH);
        if (!is_cancelled)
            CHECK_ENDED(port, KEY, &second, MUCH);
        CHECK_FAILED(port, KEY, &late, 0, ERROR_PIPE_NOT_CONNECTED);
        CHECK_FALSE(WSAGetOverlappedResult(near, &late, &count, FALSE, &flags), WSAESHUTDOWN);
        CHECK_SOCKET_ERROR(send(near, "x", 1, 0), WSAESHUTDOWN);
        if (!is_both)
            CHECK_ENDED_BY_A_BYTE(far, port, KEY, &receive);
        CHECK(is_silent(port));
        close_both(near, far);
    }
    free(much);
    free(back);
}

/* Reads the rest of the stream. */
static void end_of_stream(SOCKET s, char *bytes, size_t size)
{
    ssize_t part;
    while ((part = recv(s, bytes, size, 0)) > 0)
        ;
    CHECK(part == 0 || WSAGetLastError() == WSAECONNRESET);
}

/* A socket that is closed meanwhile ends as any other. */
static void a_shutdown_may_wait_when_its_socket_is_closed(void)
{
    enum { MUCH = 8 * 1024 * 1024 };
    char *much = (char *)calloc(1, MUCH);
    SOCKET near, far;
    OVERLAPPED sending = fresh(NULL);
    DWORD count = UNTOUCHED;
    ULONG_PTR key = 0;
    LPOVERLAPPED which = NULL;
    CHECK(much != NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(send_from(near, much, MUCH, NULL, &sending));
    CHECK_IS(shutdown(near, SD_SEND), 0);
    CHECK_IS(closesocket(near), 0);
    CHECK_FALSE(GetQueuedCompletionStatus(port, &count, &key, &which, SOON), ERROR_OPERATION_ABORTED);
    CHECK(which == &sending && count < MUCH);
    CHECK(is_silent(port));
    end_of_stream(far, much, MUCH);
    closesocket(far);
    free(much);
}

/* The end of the stream is sent, too, if its port is closed, or if the socket gets another port when its sends have just
 * ended. */
static void a_shutdown_outlives_its_port(void)
{
    enum { MUCH = 4 * 1024 * 1024 };
    char *much = (char *)calloc(1, MUCH);
    int round;
    CHECK(much != NULL);
    for (round = 0; round < tries(40, 1000); round++) {
        const int is_closed = round & 1;
        HANDLE own = new_port(1);
        SOCKET near, far;
        OVERLAPPED sending = fresh(NULL);
        tcp_pair(&near, &far);
        if (is_closed)
            associate(near, own, KEY);
        CHECK_PENDING(send_from(near, much, MUCH, NULL, &sending));
        CHECK_IS(shutdown(near, SD_SEND), 0);
        if (is_closed) {
            CHECK(CloseHandle(own));
        } else {
            receive_all(far, much, MUCH);
            while (!HasOverlappedIoCompleted(&sending))
                SwitchToThread();
            associate(near, own, KEY);
            CHECK(CloseHandle(own));
        }
        end_of_stream(far, much, MUCH);
        close_both(near, far);
    }
    free(much);
}
#endif

static void receives_are_done_in_the_order_of_their_starts(void)
{
    enum { COUNT = 50 };
    SOCKET near, far;
    OVERLAPPED overlapped[COUNT];
    char bytes[COUNT][4];
    int place;
    associated_pair(port, KEY, &near, &far);
    for (place = 0; place < COUNT; place++) {
        overlapped[place] = fresh(NULL);
        CHECK_PENDING(receive_into(near, bytes[place], 4, NULL, &overlapped[place]));
    }
    for (place = 0; place < COUNT; place++) {
        char text[4] = {(char)('0' + place / 10), (char)('0' + place % 10), 'x', 'y'};
        send_all(far, text, 4);
    }
    for (place = 0; place < COUNT; place++) {
        CHECK_ENDED(port, KEY, &overlapped[place], 4);
        CHECK_IS(bytes[place][0], '0' + place / 10);
        CHECK_IS(bytes[place][1], '0' + place % 10);
    }
    close_both(near, far);
}

static void several_buffers_are_filled_and_sent_in_order(void)
{
    SOCKET near, far;
    char one[3], two[1], rest[20];
    WSABUF into[4];
    DWORD flags = 0, received = UNTOUCHED, sent = UNTOUCHED;
    OVERLAPPED overlapped = fresh(NULL), other = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    into[0] = buffer_of(one, sizeof one);
    into[1] = buffer_of(NULL, 0);
    into[2] = buffer_of(two, sizeof two);
    into[3] = buffer_of(rest, sizeof rest);
    CHECK_PENDING(WSARecv(near, into, 4, &received, &flags, &overlapped, NULL));
    /* The array is the caller's again. */
    memset(into, 0xEE, sizeof into);
    send_all(far, "abcdefgh", 8);
    CHECK_ENDED(port, KEY, &overlapped, 8);
    CHECK(memcmp(one, "abc", 3) == 0 && two[0] == 'd' && memcmp(rest, "efgh", 4) == 0);
    into[0] = buffer_of(rest, 4);
    into[1] = buffer_of(one, 3);
    CHECK_IS(WSASend(near, into, 2, &sent, 0, &other, NULL), 0);
    CHECK_IS(sent, 7);
    CHECK_ENDED(port, KEY, &other, 7);
    receive_all(far, rest, 7);
    CHECK(memcmp(rest, "efghabc", 7) == 0);
    close_both(near, far);
}

/* A receive that fills its buffers leaves what else there is to the next one. */
static void receives_into_several_buffers_share_what_came_in_one_send(void)
{
    enum { COUNT = 8, ROOM = 4 };
    SOCKET near, far;
    OVERLAPPED overlapped[COUNT];
    char bytes[COUNT * ROOM] = {0}, text[COUNT * ROOM];
    int place;
    associated_pair(port, KEY, &near, &far);
    for (place = 0; place < COUNT; place++) {
        char *first = bytes + (size_t)place * ROOM;
        WSABUF into[2] = {buffer_of(first, 1), buffer_of(first + 1, ROOM - 1)};
        DWORD flags = 0;
        overlapped[place] = fresh(NULL);
        CHECK_PENDING(WSARecv(near, into, 2, NULL, &flags, &overlapped[place], NULL));
    }
    for (place = 0; place < COUNT * ROOM; place++)
        text[place] = (char)('A' + place);
    send_all(far, text, sizeof text);
    for (place = 0; place < COUNT; place++)
        CHECK_ENDED(port, KEY, &overlapped[place], ROOM);
    CHECK(memcmp(bytes, text, sizeof text) == 0);
    close_both(near, far);
}

/* More non-empty buffers than the system accepts in one call. Each has a separate place, and the
 * gaps between them stay unchanged. */
static void there_may_be_very_many_buffers(void)
{
    enum { COUNT = 2500, ROOM = 2 };
    static char out[COUNT][ROOM + 1], in[COUNT][ROOM + 1], flat[COUNT * ROOM];
    static WSABUF from[COUNT * 2], into[COUNT * 2];
    SOCKET near, far, server = udp_socket(), client = udp_socket();
    struct sockaddr_in address = bind_to_loopback(server), own = bind_to_loopback(client), told;
    OVERLAPPED one = fresh(NULL), other = fresh(NULL);
    DWORD flags, count, bytes = 0;
    int place, way, size;
    NOT_ON_WINE("more than 1,024 buffers are too many")
    for (place = 0; place < COUNT; place++) {
        /* One, two, or none. */
        int some = place % 3 == 2 ? 0 : place % 3 + 1;
        memset(out[place], 'A' + place % 23, ROOM + 1);
        from[place] = buffer_of(out[place], (size_t)some);
        into[place] = buffer_of(in[place], (size_t)some);
        bytes += (DWORD)some;
    }
    associated_pair(port, KEY, &near, &far);
    associate(server, port, KEY);
    for (way = 0; way < 6; way++) {
        int is_datagram = way >= 4, is_overlapped = way % 2, is_whole = way == 2 || way == 3;
        SOCKET sender = is_datagram ? client : far, receiver = is_datagram ? server : near;
        u_long blocks = 0;
        char byte;
        memset(in, '-', sizeof in);
        flags = is_whole ? MSG_WAITALL : 0;
        count = UNTOUCHED;
        size = (int)sizeof told;
        memset(&told, 0, sizeof told);
        if (is_overlapped)
            CHECK_PENDING(WSARecvFrom(receiver, into, COUNT, NULL, &flags, (struct sockaddr *)&told, &size, &one, NULL));
        if (is_datagram) {
            CHECK_IS(WSASendTo(sender, from, COUNT, &count, 0, (struct sockaddr *)&address, sizeof address,
                               is_overlapped ? &other : NULL, NULL),
                     0);
            CHECK_IS(count, bytes);
        } else if (is_whole) { /* in two pieces */
            for (place = 0, size = 0; place < COUNT; size += (int)from[place].len, place++)
                memcpy(flat + size, from[place].buf, from[place].len);
            send_all(sender, flat, 1003);
            if (is_overlapped)
                CHECK(is_silent(port));
            send_all(sender, flat + 1003, (int)bytes - 1003);
            size = (int)sizeof told;
        } else {
            CHECK_IS(WSASend(sender, from, COUNT, &count, 0, is_overlapped ? &other : NULL, NULL), 0);
            CHECK_IS(count, bytes);
        }
        if (is_overlapped) {
            CHECK_ENDED(port, KEY, &one, bytes);
        } else {
            until(receiver, POLLIN);
            CHECK_IS(WSARecvFrom(receiver, into, COUNT, &count, &flags, (struct sockaddr *)&told, &size, NULL, NULL), 0);
            CHECK_IS(count, bytes);
        }
        if (is_datagram)
            CHECK_IS(told.sin_port, own.sin_port);
        for (place = 0; place < COUNT; place++) {
            CHECK(memcmp(in[place], out[place], into[place].len) == 0);
            for (size = (int)into[place].len; size <= ROOM; size++)
                CHECK_IS(in[place][size], '-');
        }
        set_nonblocking(receiver);
        CHECK_SOCKET_ERROR((int)recv(receiver, &byte, 1, 0), WSAEWOULDBLOCK);
        CHECK_IS(ioctlsocket(receiver, FIONBIO, &blocks), 0);
    }
    /* A datagram that is longer is cut. */
    send_to(client, flat, (int)bytes, &address);
    flags = 0;
    CHECK_PENDING(WSARecv(server, into, COUNT - 1, NULL, &flags, &one, NULL));
    CHECK_FAILED(port, KEY, &one, bytes - into[COUNT - 1].len, ERROR_MORE_DATA);
    close_both(near, far);
    close_both(server, client);
}

/* What a stream sends may be said to be a part of something: servers do so. */
static void a_part_of_a_message_is_sent_over_a_stream(void)
{
    SOCKET near, far, datagrams = udp_socket();
    char byte = 'x';
    WSABUF buffer = buffer_of(&byte, 1);
    DWORD sent = UNTOUCHED;
    OVERLAPPED overlapped = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK_IS(WSASend(near, &buffer, 1, &sent, MSG_PARTIAL, &overlapped, NULL), 0);
    CHECK_IS(sent, 1);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK_IS(WSASend(near, &buffer, 1, &sent, MSG_PARTIAL, NULL, NULL), 0);
    receive_all(far, &byte, 1);
    receive_all(far, &byte, 1);
#if HAS_SOCKET_CALLS
    CHECK_SOCKET_ERROR(WSASend(datagrams, &buffer, 1, NULL, MSG_PARTIAL, &overlapped, NULL), WSAEOPNOTSUPP);
#endif
    closesocket(datagrams);
    close_both(near, far);
}

static void the_end_of_a_stream_is_no_bytes(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    closesocket(far);
    CHECK_ENDED(port, KEY, &overlapped, 0);
    closesocket(near);
}

static void a_receive_without_room_waits_and_takes_nothing(void)
{
    SOCKET near, far;
    char bytes[8];
    OVERLAPPED overlapped = fresh(NULL);
    DWORD received = UNTOUCHED;
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, NULL, 0, NULL, &overlapped));
    CHECK(is_silent(port));
    send_all(far, "hello", 5);
    CHECK_ENDED(port, KEY, &overlapped, 0);
    overlapped = fresh(NULL);
    CHECK_IS(receive_into(near, bytes, sizeof bytes, &received, &overlapped), 0);
    CHECK_IS(received, 5);
    CHECK_ENDED(port, KEY, &overlapped, 5);
    close_both(near, far);
}

static void a_receive_may_wait_for_all_or_only_look(void)
{
    SOCKET near, far;
    char bytes[6], seen[6];
    WSABUF buffer = buffer_of(bytes, sizeof bytes), look = buffer_of(seen, sizeof seen);
    DWORD flags = MSG_WAITALL;
    OVERLAPPED overlapped = fresh(NULL), peek = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    UNLESS_WINE("an overlapped receive does not wait for all") {
        CHECK_PENDING(WSARecv(near, &buffer, 1, NULL, &flags, &overlapped, NULL));
        send_all(far, "abc", 3);
        CHECK(is_silent(port));
        send_all(far, "defx", 4);
        CHECK_ENDED(port, KEY, &overlapped, 6);
        CHECK(memcmp(bytes, "abcdef", 6) == 0);
        receive_all(near, bytes, 1);
        CHECK_IS(bytes[0], 'x');
    }
    send_all(far, "g", 1);
    flags = MSG_PEEK;
    (void)WSARecv(near, &look, 1, NULL, &flags, &peek, NULL);
    CHECK_ENDED(port, KEY, &peek, 1);
    receive_all(near, bytes, 1);
    CHECK(seen[0] == 'g' && bytes[0] == 'g');
    close_both(near, far);
}

static void datagrams_come_one_by_one_with_their_senders(void)
{
    enum { COUNT = 300 };
    SOCKET server = udp_socket(), client = udp_socket();
    struct sockaddr_in address = bind_to_loopback(server), own = bind_to_loopback(client);
    static OVERLAPPED overlapped[COUNT];
    static struct sockaddr_in from[COUNT];
    static int size[COUNT];
    static char bytes[COUNT][8];
    int place;
    associate(server, port, KEY);
    for (place = 0; place < COUNT; place++) {
        WSABUF buffer = buffer_of(bytes[place], sizeof bytes[place]);
        DWORD flags = 0;
        overlapped[place] = fresh(NULL);
        size[place] = (int)sizeof from[place];
        CHECK_PENDING(WSARecvFrom(server, &buffer, 1, NULL, &flags, (struct sockaddr *)&from[place], &size[place],
                                  &overlapped[place], NULL));
    }
    for (place = 0; place < COUNT; place++) {
        WSABUF buffer = buffer_of(&place, sizeof place);
        OVERLAPPED sending = fresh(NULL);
        DWORD sent = UNTOUCHED;
        CHECK_IS(WSASendTo(client, &buffer, 1, &sent, 0, (struct sockaddr *)&address, (int)sizeof address, &sending,
                           NULL),
                 0);
        CHECK_IS(sent, sizeof place);
        CHECK_ENDED(port, KEY, &overlapped[place], sizeof place);
        CHECK(memcmp(bytes[place], &place, sizeof place) == 0);
        CHECK_IS(size[place], sizeof from[place]);
        CHECK_IS(from[place].sin_port, own.sin_port);
    }
    closesocket(server);
    closesocket(client);
}

#if HAS_SOCKET_CALLS /* Windows does not define when it reads that. */
/* How much room there is for the sender's address the call reads, and nothing reads it again. */
static void the_room_for_an_address_is_that_of_the_call(void)
{
    SOCKET server = udp_socket(), client = udp_socket();
    struct sockaddr_in address = bind_to_loopback(server), own = bind_to_loopback(client), from;
    char bytes[8];
    int size = (int)sizeof from;
    WSABUF buffer = buffer_of(bytes, sizeof bytes);
    DWORD flags = 0;
    OVERLAPPED overlapped = fresh(NULL);
    associate(server, port, KEY);
#define RECEIVE_FROM() \
    WSARecvFrom(server, &buffer, 1, NULL, &flags, (struct sockaddr *)&from, &size, &overlapped, NULL)
    CHECK_PENDING(RECEIVE_FROM());
    size = 0;
    send_to(client, "x", 1, &address);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK_IS(size, sizeof from);
    CHECK_IS(from.sin_port, own.sin_port);
#undef RECEIVE_FROM
    closesocket(server);
    closesocket(client);
}

/* The returned size never exceeds the room. An address of the file system is truncated. */
static void a_long_address_is_cut(void)
{
    SOCKET server = socket(AF_UNIX, SOCK_DGRAM, 0), client = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un address, from;
    int size = (int)sizeof address;
    char byte = 0;
    WSABUF buffer = buffer_of(&byte, 1);
    DWORD flags = 0;
    OVERLAPPED overlapped = fresh(NULL);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    CHECK_IS(bind(server, (struct sockaddr *)&address, sizeof address.sun_family), 0);
    CHECK_IS(bind(client, (struct sockaddr *)&address, sizeof address.sun_family), 0);
    CHECK_IS(getsockname(server, (struct sockaddr *)&address, &size), 0);
    associate(server, port, KEY);
    CHECK_IS(sendto(client, "x", 1, 0, (struct sockaddr *)&address, size), 1);
    size = 4;
    memset(&from, 0xEE, sizeof from);
    CHECK_IS(WSARecvFrom(server, &buffer, 1, NULL, &flags, (struct sockaddr *)&from, &size, &overlapped, NULL), 0);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK_IS(size, 4);
    CHECK_IS(from.sun_family, AF_UNIX);
    /* The emulator writes all of the address, however much room there is. */
    if (!getenv("TEST_IS_EMULATED"))
        CHECK_IS((unsigned char)from.sun_path[2], 0xEE);
    close_both(server, client);
}

#endif

/* To return the sender, a receive needs room for an address of the socket's family. */
static void room_that_is_too_small_for_an_address_is_refused(void)
{
    static const int FAMILIES[] = {AF_INET, AF_INET6};
    SOCKET near, far;
    struct sockaddr_in6 from;
    char byte;
    WSABUF buffer = buffer_of(&byte, 1);
    DWORD flags = 0, received = UNTOUCHED;
    OVERLAPPED overlapped = fresh(NULL);
    size_t place;
    int size;
#define RECEIVE_FROM(s, size, overlapped) \
    WSARecvFrom(s, &buffer, 1, &received, &flags, (struct sockaddr *)&from, size, overlapped, NULL)
    for (place = 0; place < sizeof FAMILIES / sizeof *FAMILIES; place++) {
        int family = FAMILIES[place], needed = (int)(place == 0 ? sizeof(struct sockaddr_in) : sizeof from);
        SOCKET s = socket(family, SOCK_DGRAM, 0);
        struct sockaddr_in6 own;
        const int short_ones[] = {-1, 0, 4, needed - 1};
        size_t which;
        if (s == INVALID_SOCKET) {
            printf("SKIPPED IPv6: this system has none\n");
            continue;
        }
        memset(&own, 0, sizeof own);
        own.sin6_family = (sa_family_t)family;
        CHECK_IS(bind(s, (struct sockaddr *)&own, needed), 0);
        associate(s, port, KEY);
        UNLESS_WINE("a receive begins without room for the address of the sender") {
            CHECK_SOCKET_ERROR(RECEIVE_FROM(s, NULL, &overlapped), WSAEFAULT);
            CHECK_SOCKET_ERROR(RECEIVE_FROM(s, NULL, NULL), WSAEFAULT);
            for (which = 0; which < sizeof short_ones / sizeof *short_ones; which++) {
                size = short_ones[which];
                CHECK_SOCKET_ERROR(RECEIVE_FROM(s, &size, &overlapped), WSAEFAULT);
                CHECK_SOCKET_ERROR(RECEIVE_FROM(s, &size, NULL), WSAEFAULT);
                CHECK_IS(size, short_ones[which]);
            }
        }
        CHECK(is_silent(port));
        size = needed;
        CHECK_PENDING(RECEIVE_FROM(s, &size, &overlapped));
        CHECK(CancelIoEx((HANDLE)s, &overlapped));
        CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_OPERATION_ABORTED);
        closesocket(s);
    }
    /* A stream reports no sender. */
    associated_pair(port, KEY, &near, &far);
    size = 4;
    CHECK_PENDING(RECEIVE_FROM(near, &size, &overlapped));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &overlapped);
    CHECK_PENDING(RECEIVE_FROM(near, NULL, &overlapped));
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &overlapped);
    send_all(far, "x", 1);
    CHECK_IS(RECEIVE_FROM(near, NULL, NULL), 0);
    CHECK_IS(received, 1);
#undef RECEIVE_FROM
    close_both(near, far);
}

/* An address that is too short is a bad pointer, however it is given. */
static void an_address_that_is_too_short_is_refused(void)
{
    SOCKET s = udp_socket();
    struct sockaddr_in address = loopback();
    char byte = 'x';
    WSABUF buffer = buffer_of(&byte, 1);
    DWORD sent = UNTOUCHED;
    OVERLAPPED overlapped = fresh(NULL);
    associate(s, port, KEY);
    address.sin_port = htons(9);
#define SEND_TO(size, overlapped) \
    WSASendTo(s, &buffer, 1, &sent, 0, (struct sockaddr *)&address, size, overlapped, NULL)
    CHECK_SOCKET_ERROR(SEND_TO(8, &overlapped), WSAEFAULT);
    CHECK_SOCKET_ERROR(SEND_TO(8, NULL), WSAEFAULT);
    UNLESS_WINE("a datagram is sent to an address whose length is below 0")
        CHECK_SOCKET_ERROR(SEND_TO(-1, &overlapped), WSAEFAULT);
    CHECK_SOCKET_ERROR((int)sendto(s, &byte, 1, 0, (struct sockaddr *)&address, 8), WSAEFAULT);
    CHECK(is_silent(port));
#undef SEND_TO
    closesocket(s);
}

static void a_datagram_that_is_cut_is_a_failed_packet(void)
{
    SOCKET server = udp_socket(), client = udp_socket();
    struct sockaddr_in address = bind_to_loopback(server);
    char bytes[4];
    OVERLAPPED overlapped = fresh(NULL), at_once = fresh(NULL);
    OVERLAPPED_ENTRY entry;
    ULONG count = 0;
    DWORD transferred, flags = 0;
    associate(server, port, KEY);
    CHECK_PENDING(receive_into(server, bytes, sizeof bytes, NULL, &overlapped));
    send_to(client, "too long", 8, &address);
    CHECK_FAILED(port, KEY, &overlapped, 4, ERROR_MORE_DATA);
    CHECK_IS(status_of(overlapped.Internal), BUFFER_OVERFLOW);
    CHECK(memcmp(bytes, "too ", 4) == 0);
    SetLastError(0);
    CHECK_IS(WSAGetOverlappedResult(server, &overlapped, &transferred, FALSE, &flags), FALSE);
    CHECK_IS(WSAGetLastError(), WSAEMSGSIZE);
    CHECK_IS(transferred, 4);
    UNLESS_WINE("the result of an operation has the offset in its OVERLAPPED as flags")
        CHECK_IS(flags, MSG_PARTIAL);
    /* As if it had waited, so that it makes a packet. */
    send_to(client, "too long", 8, &address);
    until(server, POLLIN);
    CHECK_IS(receive_into(server, bytes, sizeof bytes, NULL, &at_once), SOCKET_ERROR);
    CHECK(WSAGetLastError() == WSA_IO_PENDING || (!HAS_SOCKET_CALLS && WSAGetLastError() == WSAEMSGSIZE));
    CHECK(GetQueuedCompletionStatusEx(port, &entry, 1, &count, SOON, FALSE));
    CHECK_IS(count, 1);
    CHECK(entry.lpOverlapped == &at_once);
    CHECK_IS(status_of(entry.Internal), BUFFER_OVERFLOW);
    CHECK_IS(entry.dwNumberOfBytesTransferred, 4);
    closesocket(server);
    closesocket(client);
}

static void a_reset_fails_what_is_in_flight_and_what_begins(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL), second = fresh(NULL), late = fresh(NULL);
    associated_pair(port, KEY, &near, &far);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &second));
    abort_connection(far);
    CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_NETNAME_DELETED);
    CHECK_IS(status_of(overlapped.Internal), CONNECTION_RESET);
    /* The system reports it once. */
    CHECK_FAILED(port, KEY, &second, 0, ERROR_NETNAME_DELETED);
    CHECK_IS(status_of(second.Internal), CONNECTION_RESET);
    CHECK_SOCKET_ERROR(send_from(near, "x", 1, NULL, &late), WSAECONNRESET);
    UNLESS_WINE("what was told to the receives in flight is no more told")
        CHECK_SOCKET_ERROR(receive_into(near, &byte, 1, NULL, &late), WSAECONNRESET);
    CHECK(is_silent(port));
    closesocket(near);
}

#ifndef _WIN32

/* Even if another thread has got the error and not recorded it yet. */
static void a_reset_of_which_nobody_has_said_anything_is_no_end(void)
{
    int round;
    for (round = 0; round < 4; round++) {
        SOCKET near, far;
        char byte;
        int error = 0;
        socklen_t size = sizeof error;
        OVERLAPPED overlapped = fresh(NULL);
        associated_pair(port, KEY, &near, &far);
        abort_connection(far);
        until(near, POLLERR);
        CHECK_IS(syscall(SYS_getsockopt, (int)near, SOL_SOCKET, SO_ERROR, &error, &size), 0);
        CHECK_IS(error, ECONNRESET);
        if (round % 2 == 0)
            CHECK_SOCKET_ERROR(receive_into(near, &byte, round / 2, NULL, &overlapped), WSAECONNRESET);
        else
            CHECK_SOCKET_ERROR(recv(near, &byte, 1, 0), WSAECONNRESET);
        CHECK_SOCKET_ERROR(send_from(near, "x", 1, NULL, &overlapped), WSAECONNRESET);
        CHECK_SOCKET_ERROR(receive_into(near, &byte, 1, NULL, &overlapped), WSAECONNRESET);
        CHECK(is_silent(port));
        closesocket(near);
    }
}

#endif

static DWORD WINAPI take_from_the_port(LPVOID argument)
{
    OVERLAPPED_ENTRY *entry = (OVERLAPPED_ENTRY *)argument;
    UINT32 count = 0;
    CHECK_IS(take_one(port, SOON, entry, &count), ERROR_SUCCESS);
    return 0;
}

/* Whichever of the two the system reports it to. */
static void a_reset_fails_a_receive_that_is_in_flight_with_a_send(void)
{
    static char bytes[1 << 20];
    int round, rounds = is_slow() ? 10 : 300;
    for (round = 0; round < rounds; round++) {
        SOCKET near, far;
        OVERLAPPED receive = fresh(NULL), sending = fresh(NULL);
        OVERLAPPED_ENTRY taken[2];
        HANDLE threads[2];
        char byte;
        int place;
        associated_pair(port, KEY, &near, &far);
        CHECK_PENDING(receive_into(near, &byte, 1, NULL, &receive));
        while (send_from(near, bytes, sizeof bytes, NULL, &sending) == 0)
            CHECK_ENDED(port, KEY, &sending, sizeof bytes);
        CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
        for (place = 0; place < 2; place++)
            threads[place] = CreateThread(NULL, 0, take_from_the_port, &taken[place], 0, NULL);
        if (round % 2 == 0)
            SwitchToThread();
        abort_connection(far);
        CHECK_IS(WaitForMultipleObjects(2, threads, TRUE, SOON), WAIT_OBJECT_0);
        for (place = 0; place < 2; place++)
            CloseHandle(threads[place]);
        CHECK_IS(status_of(receive.Internal), CONNECTION_RESET);
        CHECK_IS(status_of(sending.Internal), CONNECTION_RESET);
        closesocket(near);
    }
}

static void all_that_is_asked_for_is_waited_for_on_streams_only(void)
{
    SOCKET near, far, datagrams = udp_socket();
    char bytes[4];
    WSABUF buffer = {sizeof bytes, bytes};
    DWORD flags = MSG_WAITALL;
    OVERLAPPED overlapped = fresh(NULL);
    NOT_ON_WINE("a receive may wait for all of datagrams, and while it only looks")
    CHECK_SOCKET_ERROR(WSARecv(datagrams, &buffer, 1, NULL, &flags, &overlapped, NULL), WSAEOPNOTSUPP);
    tcp_pair(&near, &far);
    flags = MSG_WAITALL | MSG_PEEK;
    CHECK_SOCKET_ERROR(WSARecv(near, &buffer, 1, NULL, &flags, &overlapped, NULL), WSAEOPNOTSUPP);
    close_both(near, far);
    closesocket(datagrams);
}

static void what_fails_at_once_makes_no_packet(void)
{
    SOCKET near, far, lonely = tcp_socket();
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    associate(lonely, port, KEY);
    CHECK_SOCKET_ERROR(receive_into(lonely, &byte, 1, NULL, &overlapped), WSAENOTCONN);
    UNLESS_WINE("a send without a connection fails as one that was reset")
        CHECK_SOCKET_ERROR(send_from(lonely, "x", 1, NULL, &overlapped), WSAENOTCONN);
    closesocket(lonely);
    associated_pair(port, KEY, &near, &far);
    CHECK_IS(shutdown(near, SD_SEND), 0);
    CHECK_SOCKET_ERROR(send_from(near, "x", 1, NULL, &overlapped), WSAESHUTDOWN);
    CHECK(is_silent(port));
    CHECK(!HAS_SOCKET_CALLS || HasOverlappedIoCompleted(&overlapped)); /* Windows leaves it as it was started */
    close_both(near, far);
}

#if HAS_SOCKET_CALLS
static void WSAAPI routine(DWORD error, DWORD bytes, LPWSAOVERLAPPED overlapped, DWORD flags)
{
    (void)error, (void)bytes, (void)overlapped, (void)flags;
    CHECK(!"called");
}

/* What Windows does not promise to refuse. */
static void what_is_not_carried_out_is_refused(void)
{
    SOCKET near, far, datagrams = udp_socket();
    char byte;
    WSABUF buffer = buffer_of(&byte, 1);
    DWORD flags = 0, strange = 0x40000000, partial = MSG_PARTIAL;
    OVERLAPPED overlapped = fresh(NULL), twice = fresh(NULL);
    int size = -1, room = (int)sizeof(struct sockaddr_in);
    struct sockaddr_in address = bind_to_loopback(datagrams), from;
    associated_pair(port, KEY, &near, &far);
    associate(datagrams, port, KEY);
#define RECEIVE_FROM(flags, routine) \
    WSARecvFrom(datagrams, &buffer, 1, NULL, flags, (struct sockaddr *)&from, &room, &overlapped, routine)
#define SEND_TO(flags, routine) \
    WSASendTo(datagrams, &buffer, 1, NULL, flags, (struct sockaddr *)&address, sizeof address, &overlapped, routine)
    CHECK_SOCKET_ERROR(RECEIVE_FROM(&strange, NULL), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(RECEIVE_FROM(&flags, routine), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(SEND_TO(strange, NULL), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(SEND_TO(0, routine), WSAEOPNOTSUPP);
#undef RECEIVE_FROM
#undef SEND_TO
    CHECK_SOCKET_ERROR(WSASend(near, &buffer, 1, NULL, strange, &overlapped, NULL), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(WSARecv(near, &buffer, 1, NULL, &strange, &overlapped, NULL), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(WSARecv(near, &buffer, 1, NULL, &flags, &overlapped, routine), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(WSASend(near, &buffer, 1, NULL, 0, &overlapped, routine), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(WSASendTo(near, &buffer, 1, NULL, 0, (struct sockaddr *)&address, size, &overlapped, NULL),
                       WSAEFAULT);
    CHECK(is_silent(port));
    /* An invalid event. */
    overlapped = fresh(port);
    CHECK_SOCKET_ERROR(WSARecv(near, &buffer, 1, NULL, &flags, &overlapped, NULL), ERROR_INVALID_HANDLE);
    /* An OVERLAPPED already in flight; its end is reported once. */
    CHECK_PENDING(WSARecv(near, &buffer, 1, NULL, &partial, &twice, NULL));
    CHECK_SOCKET_ERROR(WSARecv(near, &buffer, 1, NULL, &flags, &twice, NULL), WSAEINVAL);
    CHECK_IS((DWORD)twice.Internal, STATUS_PENDING);
    CHECK_ENDED_BY_A_BYTE(far, port, KEY, &twice);
    CHECK(is_silent(port));
    close_both(near, far);
    closesocket(datagrams);
}

#endif

static void bad_arguments_are_refused(void)
{
    SOCKET near, far, datagrams = udp_socket();
    struct sockaddr_in address = bind_to_loopback(datagrams), from;
    uintptr_t file, ends[2];
    char byte;
    WSABUF buffer = buffer_of(&byte, 1);
    DWORD flags = 0;
    int room = (int)sizeof from;
    OVERLAPPED overlapped = fresh(NULL);
    open_file_and_pipe(&file, ends);
    associated_pair(port, KEY, &near, &far);
    associate(datagrams, port, KEY);
#define RECEIVE_FROM(s, buffers, count, flags) \
    WSARecvFrom(s, buffers, count, NULL, flags, (struct sockaddr *)&from, &room, &overlapped, NULL)
#define SEND_TO(s, buffers, count) \
    WSASendTo(s, buffers, count, NULL, 0, (struct sockaddr *)&address, sizeof address, &overlapped, NULL)
    CHECK_SOCKET_ERROR(RECEIVE_FROM(datagrams, NULL, 1, &flags), WSAEFAULT);
    CHECK_SOCKET_ERROR(RECEIVE_FROM(datagrams, &buffer, 1, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(RECEIVE_FROM(INVALID_SOCKET, &buffer, 1, &flags), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(RECEIVE_FROM((SOCKET)file, &buffer, 1, &flags), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(SEND_TO(datagrams, NULL, 1), WSAEFAULT);
    CHECK_SOCKET_ERROR(SEND_TO(INVALID_SOCKET, &buffer, 1), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(SEND_TO((SOCKET)file, &buffer, 1), WSAENOTSOCK);
    UNLESS_WINE("a call without buffers is no mistake") {
        CHECK_SOCKET_ERROR(RECEIVE_FROM(datagrams, &buffer, 0, &flags), WSAEINVAL);
        CHECK_SOCKET_ERROR(SEND_TO(datagrams, &buffer, 0), WSAEINVAL);
    }
    CHECK(is_silent(port));
    /* One that is closed. */
    CHECK_IS(closesocket(datagrams), 0);
    CHECK_SOCKET_ERROR(RECEIVE_FROM(datagrams, &buffer, 1, &flags), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(SEND_TO(datagrams, &buffer, 1), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(WSARecv(datagrams, &buffer, 1, NULL, &flags, &overlapped, NULL), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(WSASend(datagrams, &buffer, 1, NULL, 0, &overlapped, NULL), WSAENOTSOCK);
#undef RECEIVE_FROM
#undef SEND_TO
    CHECK_SOCKET_ERROR(WSARecv(near, NULL, 1, NULL, &flags, &overlapped, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecv(near, &buffer, 1, NULL, NULL, &overlapped, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSARecv(INVALID_SOCKET, &buffer, 1, NULL, &flags, &overlapped, NULL), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(WSARecv((SOCKET)file, &buffer, 1, NULL, &flags, &overlapped, NULL), WSAENOTSOCK);
    CHECK_SOCKET_ERROR(WSASend(near, NULL, 1, NULL, 0, &overlapped, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSASend(INVALID_SOCKET, &buffer, 1, NULL, 0, &overlapped, NULL), WSAENOTSOCK);
    UNLESS_WINE("a call without buffers is no mistake") {
        CHECK_SOCKET_ERROR(WSARecv(near, &buffer, 0, NULL, &flags, &overlapped, NULL), WSAEINVAL);
        CHECK_SOCKET_ERROR(WSASend(near, &buffer, 0, NULL, 0, &overlapped, NULL), WSAEINVAL);
    }
    CHECK(is_silent(port));
    close_both(near, far);
    close_file_and_pipe(file, ends);
}

#if HAS_SOCKET_CALLS /* To Windows it has another place among the rest. */
/* Receives do not return a stream's urgent data, but stop once at its mark. */
static void urgent_data_leaves_the_other_in_order(void)
{
    static const char *const TEXTS[] = {"ab", "cd"};
    SOCKET near, far;
    char first[8], second[8], urgent = 0, text[] = "!";
    WSABUF buffer = buffer_of(text, 1);
    DWORD sent = UNTOUCHED, received = UNTOUCHED, flags = MSG_OOB;
    OVERLAPPED one = fresh(NULL), other = fresh(NULL), sending = fresh(NULL);
    u_long at_mark = 0;
    int waits;
    associated_pair(port, KEY, &near, &far);
    associate(far, port, KEY + 1);
    for (waits = 0; waits < 2; waits++) {
        if (waits) {
            CHECK_PENDING(receive_into(near, first, sizeof first, NULL, &one));
            CHECK_PENDING(receive_into(near, second, sizeof second, NULL, &other));
            /* Urgent data alone ends no receive. One that waits passes over it, and it is gone: so Linux has it. */
            CHECK_IS(WSASend(far, &buffer, 1, &sent, MSG_OOB, &sending, NULL), 0);
            CHECK_IS(sent, 1);
            CHECK_ENDED(port, KEY + 1, &sending, 1);
            CHECK(is_silent(port));
            CHECK_SOCKET_ERROR((int)recv(near, &urgent, 1, MSG_OOB), WSAEINVAL);
            send_all(far, TEXTS[0], 2);
            CHECK_ENDED(port, KEY, &one, 2);
            send_all(far, TEXTS[1], 2);
            CHECK_ENDED(port, KEY, &other, 2);
        } else {
            /* The first receive ends at the mark, though there is more. */
            send_all(far, TEXTS[0], 2);
            CHECK_IS(WSASend(far, &buffer, 1, &sent, MSG_OOB, &sending, NULL), 0);
            CHECK_ENDED(port, KEY + 1, &sending, 1);
            send_all(far, TEXTS[1], 2);
            until(near, POLLPRI);
            CHECK_IS(receive_into(near, first, sizeof first, &received, &one), 0);
            CHECK_IS(received, 2);
            CHECK_ENDED(port, KEY, &one, 2);
            CHECK_IS(ioctlsocket(near, SIOCATMARK, &at_mark), 0);
            CHECK(at_mark != 0);
            CHECK_IS(recv(near, &urgent, 1, MSG_OOB), 1);
            CHECK_IS(urgent, '!');
            (void)receive_into(near, second, sizeof second, NULL, &other);
            CHECK_ENDED(port, KEY, &other, 2);
        }
        CHECK(memcmp(first, TEXTS[0], 2) == 0 && memcmp(second, TEXTS[1], 2) == 0);
        urgent = 0;
    }
    /* It is received by recv alone. */
    buffer = buffer_of(&urgent, 1);
    CHECK_SOCKET_ERROR(WSARecv(near, &buffer, 1, NULL, &flags, &one, NULL), WSAEOPNOTSUPP);
    CHECK(is_silent(port));
    close_both(near, far);
}

/* Two receives wait: the first ends at the mark, and the second gets the following data. */
static void a_receive_that_waits_stops_at_the_mark(void)
{
    SOCKET near, far;
    char first[8], second[8], text[] = "!";
    WSABUF buffer = buffer_of(text, 1);
    DWORD sent;
    OVERLAPPED one = fresh(NULL), other = fresh(NULL);
    int round, rounds = is_slow() ? 5 : 100;
    associated_pair(port, KEY, &near, &far);
    for (round = 0; round < rounds; round++) {
        CHECK_PENDING(receive_into(near, first, sizeof first, NULL, &one));
        CHECK_PENDING(receive_into(near, second, sizeof second, NULL, &other));
        send_all(far, "ab", 2);
        CHECK_IS(WSASend(far, &buffer, 1, &sent, MSG_OOB, NULL, NULL), 0);
        send_all(far, "cd", 2);
        CHECK_ENDED(port, KEY, &one, 2);
        CHECK_ENDED(port, KEY, &other, 2);
        CHECK(memcmp(first, "ab", 2) == 0 && memcmp(second, "cd", 2) == 0);
    }
    close_both(near, far);
}

#endif

/* An OVERLAPPED may be given again from within the handling of its packet, and freed as soon as its end is known. */
static void an_overlapped_is_the_programs_again_when_its_end_is_known(void)
{
    SOCKET near, far;
    int round;
    associated_pair(port, KEY, &near, &far);
    for (round = 0; round < 200; round++) {
        OVERLAPPED *overlapped = (OVERLAPPED *)malloc(sizeof *overlapped);
        char *bytes = (char *)malloc(1);
        DWORD count = UNTOUCHED;
        ULONG_PTR key;
        LPOVERLAPPED which;
        CHECK(overlapped && bytes);
        *overlapped = fresh(NULL);
        CHECK_PENDING(receive_into(near, bytes, 1, NULL, overlapped));
        send_all(far, "x", 1);
        CHECK(GetOverlappedResult((HANDLE)near, overlapped, &count, TRUE));
        CHECK_IS(count, 1);
        free(overlapped);
        free(bytes);
        CHECK(GetQueuedCompletionStatus(port, &count, &key, &which, SOON));
        CHECK(which == overlapped);
        CHECK_IS(count, 1);
    }
    close_both(near, far);
}

static void a_socket_is_associated_once(void)
{
    SOCKET s = udp_socket();
    HANDLE other = new_port(1);
    associate(s, port, KEY);
    SetLastError(0);
    CHECK(CreateIoCompletionPort((HANDLE)s, port, KEY, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK(CreateIoCompletionPort((HANDLE)s, other, KEY, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    closesocket(s);
    CHECK(CloseHandle(other));
}

#if HAS_SOCKET_CALLS
/* What is known of a socket stays known when it gets another port after its first one was closed. */
static void an_association_changes_nothing_else(void)
{
    HANDLE first = new_port(1), second = new_port(1);
    SOCKET s = udp_socket();
    OVERLAPPED overlapped = fresh(NULL);
    char byte;
    (void)bind_to_loopback(s);
    associate(s, first, 1);
    CHECK_PENDING(receive_into(s, &byte, 1, NULL, &overlapped));
    send_to_itself(s);
    CHECK_ENDED(first, 1, &overlapped, 1);
    CHECK_IS(shutdown(s, SD_RECEIVE), 0);
    CHECK(CloseHandle(first));
    associate(s, second, 2);
    CHECK_SOCKET_ERROR(receive_into(s, &byte, 1, NULL, &overlapped), WSAESHUTDOWN);
    closesocket(s);
    CHECK(CloseHandle(second));
}
#endif

static void a_new_port_may_come_with_its_first_socket(void)
{
    SOCKET near, far;
    char byte;
    OVERLAPPED overlapped = fresh(NULL);
    HANDLE own;
    tcp_pair(&near, &far);
    own = CreateIoCompletionPort((HANDLE)near, NULL, 77, 1);
    CHECK(own != NULL);
    CHECK_PENDING(receive_into(near, &byte, 1, NULL, &overlapped));
    CHECK_ENDED_BY_A_BYTE(far, own, 77, &overlapped);
    close_both(near, far);
    CHECK(CloseHandle(own));
}

int main(void)
{
    start();
    port = new_port(2);
    a_receive_that_waits_completes_by_a_packet();
    what_is_there_is_received_at_once_and_a_packet_comes_all_the_same();
    a_send_goes_out_at_once_and_waits_for_room();
#if HAS_SOCKET_CALLS
    a_shutdown_follows_the_sends_in_flight();
    a_shutdown_may_wait_when_its_socket_is_closed();
    a_shutdown_outlives_its_port();
#endif
    receives_are_done_in_the_order_of_their_starts();
    several_buffers_are_filled_and_sent_in_order();
    receives_into_several_buffers_share_what_came_in_one_send();
    there_may_be_very_many_buffers();
    a_part_of_a_message_is_sent_over_a_stream();
    the_end_of_a_stream_is_no_bytes();
    a_receive_without_room_waits_and_takes_nothing();
    a_receive_may_wait_for_all_or_only_look();
    datagrams_come_one_by_one_with_their_senders();
#if HAS_SOCKET_CALLS
    the_room_for_an_address_is_that_of_the_call();
    a_long_address_is_cut();
#endif
    room_that_is_too_small_for_an_address_is_refused();
    an_address_that_is_too_short_is_refused();
    a_datagram_that_is_cut_is_a_failed_packet();
    a_reset_fails_what_is_in_flight_and_what_begins();
#ifndef _WIN32
    a_reset_of_which_nobody_has_said_anything_is_no_end();
#endif
    a_reset_fails_a_receive_that_is_in_flight_with_a_send();
    all_that_is_asked_for_is_waited_for_on_streams_only();
    what_fails_at_once_makes_no_packet();
    bad_arguments_are_refused();
#if HAS_SOCKET_CALLS
    what_is_not_carried_out_is_refused();
    urgent_data_leaves_the_other_in_order();
    a_receive_that_waits_stops_at_the_mark();
#endif
    an_overlapped_is_the_programs_again_when_its_end_is_known();
    a_socket_is_associated_once();
#if HAS_SOCKET_CALLS
    an_association_changes_nothing_else();
#endif
    a_new_port_may_come_with_its_first_socket();
    CHECK(CloseHandle(port));
    return finish();
}
