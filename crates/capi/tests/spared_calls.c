/* Results of reads and writes spare the library a query to the kernel when a socket is enabled
 * again. This test shows that nothing is lost: data that a read leaves is always reported. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <pthread.h>

#include "check.h"

static HANDLE port;

/* Waits until that many bytes are readable. */
static void until_there_are(SOCKET s, u_long count)
{
    u_long there = 0;
    while (there < count) {
        until(s, POLLIN);
        CHECK_IS(ioctlsocket(s, FIONREAD, &there), 0);
    }
}

#define TOLD_AGAIN(s, filter, events) \
    do { \
        CHECK_IS(enable(port, (s), 1, (filter), LEVEL_ONCE), ERROR_SUCCESS); \
        CHECK_NEXT(port, 1, (events)); \
    } while (0)

#define NOT_TOLD(s, filter) \
    do { \
        CHECK_IS(enable(port, (s), 1, (filter), LEVEL_ONCE), ERROR_SUCCESS); \
        CHECK(is_silent(port)); \
    } while (0)

static void what_a_read_leaves_is_told(void)
{
    SOCKET near, far;
    char bytes[100];
    tcp_pair(&near, &far);
    CHECK_IS(enable(port, near, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    send_all(far, "0123456789", 10);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    until_there_are(near, 10);

    CHECK_IS(recv(near, bytes, 4, 0), 4); /* full: has no meaning */
    TOLD_AGAIN(near, FILTER_IN, SOCK_NOTIFY_EVENT_IN);
    CHECK_IS(recv(near, bytes, sizeof bytes, MSG_PEEK), 6); /* short, but takes nothing */
    TOLD_AGAIN(near, FILTER_IN, SOCK_NOTIFY_EVENT_IN);
    CHECK_IS(recv(near, bytes, sizeof bytes, 0), 6); /* short: nothing is left */
    NOT_TOLD(near, FILTER_IN);
    send_all(far, "x", 1);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);

    /* A read that is not ours may leave something after ours has left nothing. */
    CHECK_IS(recv(near, bytes, sizeof bytes, 0), 1);
    send_all(far, "abc", 3);
    until_there_are(near, 3);
    CHECK_IS(read((int)near, bytes, 1), 1);
    TOLD_AGAIN(near, FILTER_IN, SOCK_NOTIFY_EVENT_IN);
    CHECK_IS(recvfrom(near, bytes, sizeof bytes, 0, NULL, NULL), 2);
    NOT_TOLD(near, FILTER_IN);

    /* Results from before a packet have no meaning after it. */
    set_nonblocking(near);
    CHECK_SOCKET_ERROR(recv(near, bytes, sizeof bytes, 0), WSAEWOULDBLOCK);
    send_all(far, "x", 1);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    TOLD_AGAIN(near, FILTER_IN, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, near, 1);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

/* A read stops at urgent data, however much data follows. */
static void a_read_that_stops_at_urgent_data_leaves_the_rest(void)
{
    SOCKET near, far;
    char bytes[100];
    int way;
    for (way = 0; way < 2; way++) {
        int in_line = way;
        tcp_pair(&near, &far);
        CHECK_IS(setsockopt(near, SOL_SOCKET, SO_OOBINLINE, (const char *)&in_line, sizeof in_line), 0);
        CHECK_IS(enable(port, near, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        send_all(far, "abc", 3);
        CHECK_IS(send(far, "!", 1, MSG_OOB), 1);
        send_all(far, "defg", 4);
        CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
        until(near, POLLIN | POLLPRI);
        {
            char all[8];
            while (recv(near, all, sizeof all, MSG_PEEK) != 3) { /* up to the mark */
            }
        }
        usleep(20000); /* the rest has arrived by then, or causes its own edge */
        CHECK_IS(recv(near, bytes, sizeof bytes, 0), 3);
        TOLD_AGAIN(near, FILTER_IN, SOCK_NOTIFY_EVENT_IN);
        CHECK_IS(recv(near, bytes, sizeof bytes, 0), 4 + in_line);
        NOT_TOLD(near, FILTER_IN);
        END_REGISTRATION(port, near, 1);
        CHECK_IS(closesocket(near), 0);
        CHECK_IS(closesocket(far), 0);
    }
}

/* Data and the end of the stream have arrived together; the read that returns the data does not
 * report the end. */
static void the_end_behind_the_data_is_told(void)
{
    unsigned way;
    for (way = 0; way < 2; way++) {
        unsigned filter = way == 0 ? FILTER_IN | FILTER_HANGUP : FILTER_IN;
        SOCKET near, far;
        char bytes[100];
        tcp_pair(&near, &far);
        CHECK_IS(enable(port, near, 1, filter, LEVEL_ONCE), ERROR_SUCCESS);
        send_all(far, "x", 1);
        CHECK_IS(closesocket(far), 0);
        until(near, POLLIN | POLLRDHUP);
        CHECK_NEXT(port, 1, way == 0 ? SOCK_NOTIFY_EVENT_IN | SOCK_NOTIFY_EVENT_HANGUP : SOCK_NOTIFY_EVENT_IN);
        CHECK_IS(recv(near, bytes, sizeof bytes, 0), 1);
        TOLD_AGAIN(near, filter, way == 0 ? SOCK_NOTIFY_EVENT_HANGUP : SOCK_NOTIFY_EVENT_IN);
        CHECK_IS(recv(near, bytes, sizeof bytes, 0), 0);
        TOLD_AGAIN(near, filter, way == 0 ? SOCK_NOTIFY_EVENT_HANGUP : SOCK_NOTIFY_EVENT_IN);
        END_REGISTRATION(port, near, 1);
        CHECK_IS(closesocket(near), 0);
    }
}

/* A datagram is shorter than the buffer nearly always. */
static void the_next_datagram_is_told(void)
{
    SOCKET s = udp_socket();
    struct sockaddr_in address = bind_to_loopback(s);
    char bytes[100];
    int i;
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    for (i = 0; i < 3; i++) {
        send_to(s, "x", 1, &address);
    }
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_IN);
    for (i = 0; i < 2; i++) {
        CHECK_IS(recv(s, bytes, sizeof bytes, 0), 1);
        TOLD_AGAIN(s, FILTER_IN, SOCK_NOTIFY_EVENT_IN);
    }
    CHECK_IS(recv(s, bytes, sizeof bytes, 0), 1);
    NOT_TOLD(s, FILTER_IN);
    END_REGISTRATION(port, s, 1);
    CHECK_IS(closesocket(s), 0);
}

/* An accepted connection is none of the next one. */
static void the_next_connection_is_told(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), clients[3], accepted;
    int i;
    set_nonblocking(listener);
    for (i = 0; i < 3; i++) {
        clients[i] = tcp_connected_to(&address);
    }
    for (i = 0; i < 3; i++) {
        TOLD_AGAIN(listener, FILTER_IN, SOCK_NOTIFY_EVENT_IN);
        accepted = accept(listener, NULL, NULL);
        CHECK(accepted != INVALID_SOCKET);
        CHECK_IS(closesocket(accepted), 0);
        CHECK_IS(closesocket(clients[i]), 0);
    }
    accepted = accept(listener, NULL, NULL);
    CHECK(accepted == INVALID_SOCKET);
    NOT_TOLD(listener, FILTER_IN);
    END_REGISTRATION(port, listener, 1);
    CHECK_IS(closesocket(listener), 0);
}

static void room_that_comes_back_is_told(void)
{
    static char much[1 << 16];
    SOCKET near, far;
    int sent = 0, count;
    tcp_pair(&near, &far);
    set_nonblocking(near);
    TOLD_AGAIN(near, FILTER_OUT, SOCK_NOTIFY_EVENT_OUT);
    while ((count = (int)send(near, much, sizeof much, 0)) > 0) {
        sent += count;
    }
    CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
    NOT_TOLD(near, FILTER_OUT);
    while (sent > 0) {
        count = (int)recv(far, much, sizeof much, 0);
        CHECK(count > 0);
        sent -= count;
    }
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    TOLD_AGAIN(near, FILTER_OUT, SOCK_NOTIFY_EVENT_OUT);
    END_REGISTRATION(port, near, 1);
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);
}

/* ---- at random -------------------------------------------------------------------------------------- */

enum { STREAMS = 4, READERS = 3, BYTES = 300000 };

typedef struct {
    SOCKET near, far;
    unsigned seed, received;
    int is_over;
} STREAM;

static STREAM streams[STREAMS];
static int streams_over;

static unsigned bytes_of_each(void)
{
    return is_slow() ? BYTES / 20 : BYTES;
}

static unsigned chance(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

static void *writes_in_bursts(void *argument)
{
    STREAM *stream = (STREAM *)argument;
    unsigned seed = (unsigned)(stream - streams) + 99, sent = 0, i;
    while (sent < bytes_of_each()) {
        char bytes[3000];
        unsigned count = 1 + chance(&seed) % (chance(&seed) % 8 == 0 ? sizeof bytes : 40);
        count = count > bytes_of_each() - sent ? bytes_of_each() - sent : count;
        for (i = 0; i < count; i++) {
            bytes[i] = (char)((sent + i) % 251);
        }
        send_all(stream->far, bytes, (int)count);
        sent += count;
        if (chance(&seed) % 16 == 0) {
            usleep(chance(&seed) % 300);
        }
    }
    CHECK_IS(shutdown(stream->far, SD_SEND), 0);
    return NULL;
}

/* Reads once for each packet, a random amount, and enables: the rest must be reported. */
static void *reads_a_part(void *unused)
{
    (void)unused;
    for (;;) {
        unsigned events, i, size;
        STREAM *stream = (STREAM *)NEXT(port, &events);
        char bytes[700];
        int count;
        if (stream == NULL) {
            CHECK_IS(PostQueuedCompletionStatus(port, 0, 0, NULL), TRUE);
            return NULL;
        }
        size = 1 + chance(&stream->seed) % sizeof bytes;
        count = (int)recv(stream->near, bytes, size, 0);
        CHECK(count >= 0);
        for (i = 0; i < (unsigned)count; i++) {
            CHECK_IS(bytes[i], (char)((stream->received + i) % 251));
        }
        stream->received += (unsigned)count;
        if (count == 0) {
            CHECK_IS(stream->received, bytes_of_each());
            if (__atomic_add_fetch(&streams_over, 1, __ATOMIC_SEQ_CST) == STREAMS) {
                CHECK_IS(PostQueuedCompletionStatus(port, 0, 0, NULL), TRUE);
            }
        } else {
            CHECK_IS(enable(port, stream->near, 0, FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
        }
    }
}

static void nothing_is_lost_at_random(void)
{
    pthread_t readers[READERS], writers[STREAMS];
    unsigned events;
    int i;
    for (i = 0; i < STREAMS; i++) {
        streams[i].seed = (unsigned)i;
        tcp_pair(&streams[i].near, &streams[i].far);
        CHECK_IS(enable(port, streams[i].near, (uintptr_t)&streams[i], FILTER_IN, LEVEL_ONCE), ERROR_SUCCESS);
    }
    for (i = 0; i < READERS; i++) {
        CHECK_IS(pthread_create(&readers[i], NULL, reads_a_part, NULL), 0);
    }
    for (i = 0; i < STREAMS; i++) {
        CHECK_IS(pthread_create(&writers[i], NULL, writes_in_bursts, &streams[i]), 0);
    }
    for (i = 0; i < STREAMS; i++) {
        CHECK_IS(pthread_join(writers[i], NULL), 0);
    }
    for (i = 0; i < READERS; i++) {
        CHECK_IS(pthread_join(readers[i], NULL), 0);
    }
    CHECK_IS(NEXT(port, &events), 0); /* the one that was handed on last */
    for (i = 0; i < STREAMS; i++) {
        END_REGISTRATION(port, streams[i].near, (intptr_t)&streams[i]);
        CHECK_IS(closesocket(streams[i].near), 0);
        CHECK_IS(closesocket(streams[i].far), 0);
    }
}

int main(void)
{
    start();
    port = new_port(0);
    what_a_read_leaves_is_told();
    a_read_that_stops_at_urgent_data_leaves_the_rest();
    the_end_behind_the_data_is_told();
    the_next_datagram_is_told();
    the_next_connection_is_told();
    room_that_comes_back_is_told();
    nothing_is_lost_at_random();
    CHECK(is_silent(port));
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
