/* A registration whose socket is closed and whose number is reused: the old key is never reported.
 * Rows 29 and 30. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <completion_port.h>

#include <pthread.h>

#include "check.h"

static HANDLE port;

/* How the sockets of a round are closed and made. */
enum {
    BY_CLOSESOCKET,
    BY_CLOSE_AND_FORGET,
    BY_CLOSE_AND_SOCKET, /* closed unseen; socket() returns the number again */
#if HAS_CHECKED_MODE
    BY_CLOSE_CHECKED, /* both unseen, in checked mode */
#endif
    WAYS
};

static SOCKET make_it(int way)
{
#if HAS_CHECKED_MODE
    if (way == BY_CLOSE_CHECKED) {
        return unseen_socket();
    }
#endif
    (void)way;
    return udp_socket();
}

static void close_it(SOCKET s, int way)
{
    if (way == BY_CLOSESOCKET) {
        CHECK_IS(closesocket(s), 0);
    } else {
        close_unseen(s);
        if (way == BY_CLOSE_AND_FORGET) {
            cp_forget((int)s);
        }
    }
}

/* Each round leaves a registration that has something to report. The next has the same number. */
static void a_number_that_comes_back_has_its_new_key(int way, unsigned trigger)
{
    int rounds = is_slow() ? 40 : 400, same = 0, round;
    SOCKET before = INVALID_SOCKET;
    for (round = 1; round <= rounds; round++) {
        SOCKET s = make_it(way);
        struct sockaddr_in address = bind_to_loopback(s);
        char byte;
        same += s == before;
        before = s;
        CHECK_IS(enable(port, s, (uintptr_t)round, FILTER_IN, trigger), ERROR_SUCCESS);
        send_to(s, "x", 1, &address);
        if (round % 3 != 0) {
            CHECK_NEXT(port, round, SOCK_NOTIFY_EVENT_IN);
        }
        if (round % 3 == 1) {
            CHECK_IS(recv(s, &byte, 1, 0), 1);
            CHECK_IS(enable(port, s, (uintptr_t)-1, FILTER_IN, trigger), ERROR_SUCCESS);
            send_to(s, "x", 1, &address);
            CHECK_NEXT(port, round, SOCK_NOTIFY_EVENT_IN);
        }
        close_it(s, way);
    }
    CHECK(same > rounds / 2); /* else this has shown nothing */
}

/* A number that was registered and has been closed is not registered any more. */
static void a_closed_socket_is_not_registered(int way)
{
    SOCKET s = make_it(way), again;
    CHECK_IS(enable(port, s, 1, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    close_it(s, way);
    again = make_it(way);
    CHECK(again == s);
    CHECK_IS(unregister(port, again), ERROR_NOT_FOUND);
    CHECK_IS(closesocket(again), 0);
    CHECK(is_silent(port)); /* and there was no REMOVE packet */
}

/* accept, too, hands out numbers. */
static void an_accepted_socket_is_a_new_one(void)
{
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address), client, first, second;
    client = tcp_connected_to(&address);
    first = accept(listener, NULL, NULL);
    CHECK(first != INVALID_SOCKET);
    CHECK_IS(enable(port, first, 1, FILTER_IN | FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
    CHECK_IS(closesocket(client), 0);
    client = tcp_connected_to(&address); /* takes the number of the client before */
    close_unseen(first);
    second = accept(listener, NULL, NULL);
    CHECK(second == first);
    CHECK_IS(enable(port, second, 2, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    send_all(client, "x", 1);
    CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_IN);
    END_REGISTRATION(port, second, 2);
    CHECK_IS(closesocket(second), 0);
    CHECK_IS(closesocket(client), 0);
    CHECK_IS(closesocket(listener), 0);
    CHECK(is_silent(port));
}

/* A registration on one port ends when its number is closed, whichever port the next one is on. */
static void a_number_may_come_back_on_another_port(int way)
{
    HANDLE other = new_port(0);
    SOCKET s = make_it(way), again;
    CHECK_IS(enable(port, s, 1, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    close_it(s, way);
    again = make_it(way);
    CHECK(again == s);
    CHECK_IS(enable(other, again, 2, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    CHECK_NEXT(other, 2, SOCK_NOTIFY_EVENT_OUT);
    CHECK(is_silent(port));
    END_REGISTRATION(other, again, 2);
    CHECK_IS(closesocket(again), 0);
    CHECK_IS(CloseHandle(other), TRUE);
}

/* Whether a socket is refused until the last packet of the one that had its number was taken. */
static int is_taken_for_what_was_removed(int way)
{
    return !KNOWS_WHAT_WAS_REMOVED && way == BY_CLOSE_AND_SOCKET;
}

/* Even if its removal was requested and has not been reported yet. */
static void a_removed_number_may_come_back_on_another_port(int way)
{
    HANDLE other = new_port(0);
    SOCKET s = make_it(way), again;
    CHECK_IS(enable(port, s, 1, FILTER_OUT, LEVEL_ON), ERROR_SUCCESS);
    CHECK_IS(unregister(port, s), ERROR_SUCCESS);
    close_it(s, way);
    again = make_it(way);
    CHECK(again == s);
    if (is_taken_for_what_was_removed(way)) {
        CHECK_IS(enable(other, again, 2, FILTER_OUT, LEVEL_ONCE), ERROR_INVALID_PARAMETER);
        CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_REMOVE);
    }
    CHECK_IS(enable(other, again, 2, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
    CHECK_NEXT(other, 2, SOCK_NOTIFY_EVENT_OUT);
    if (!is_taken_for_what_was_removed(way)) {
        CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_REMOVE);
    }
    END_REGISTRATION(other, again, 2);
    CHECK(is_silent(port));
    CHECK_IS(closesocket(again), 0);
    CHECK_IS(CloseHandle(other), TRUE);
}

/* A program that has requested removal frees memory at the packet, even if it closes the socket
 * immediately. Another socket may have the number before that packet is taken. */
static void a_removal_that_was_asked_for_is_told_after_closing(int way)
{
    SOCKET s = make_it(way), again;
    unsigned trigger, events;
    int i;
    for (trigger = 0; trigger < 3; trigger++) {
        static const unsigned triggers[] = {LEVEL_ON, LEVEL_ONCE, EDGE_ON};
        CHECK_IS(enable(port, s, 1, FILTER_IN | FILTER_OUT, triggers[trigger]), ERROR_SUCCESS);
        if (trigger != 2) {
            CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_OUT);
        }
        CHECK_IS(unregister(port, s), ERROR_SUCCESS);
        close_it(s, way);
        again = make_it(way);
        CHECK(again == s);
        if (is_taken_for_what_was_removed(way)) {
            CHECK_IS(enable(port, again, 2, FILTER_OUT, LEVEL_ONCE), ERROR_INVALID_PARAMETER);
            CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_REMOVE);
            CHECK_IS(enable(port, again, 2, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
            CHECK_NEXT(port, 2, SOCK_NOTIFY_EVENT_OUT);
        } else {
            int is_told[3] = {0};
            CHECK_IS(enable(port, again, 2, FILTER_OUT, LEVEL_ONCE), ERROR_SUCCESS);
            for (i = 0; i < 2; i++) {
                uintptr_t key = NEXT(port, &events);
                CHECK(key == 1 || key == 2);
                CHECK_IS(events, key == 1 ? SOCK_NOTIFY_EVENT_REMOVE : SOCK_NOTIFY_EVENT_OUT);
                CHECK_IS(is_told[key]++, 0);
            }
        }
        END_REGISTRATION(port, again, 2);
        CHECK(is_silent(port));
    }
    close_it(s, way);
}

static void forgetting_nothing_is_harmless(void)
{
    SOCKET s = udp_socket();
    cp_forget(-1);
    cp_forget(0x7FFFFFFF);
    cp_forget((int)s);
    CHECK_IS(closesocket(s), 0);
    cp_forget((int)s);
}

/* Row 29: one thread waits, others create sockets, and free the memory of a key after its REMOVE. */
enum { OWNERS = 3, OBJECTS = 300 };

typedef struct {
    SOCKET s;
    unsigned guard;
} OBJECT;

static int still_there;

static void *makes_objects(void *argument)
{
    int count = is_slow() ? OBJECTS / 10 : OBJECTS, i;
    (void)argument;
    for (i = 0; i < count; i++) {
        OBJECT *object = (OBJECT *)malloc(sizeof *object);
        CHECK(object != NULL);
        object->s = udp_socket();
        object->guard = 0x600DF00Du;
        __atomic_add_fetch(&still_there, 1, __ATOMIC_SEQ_CST);
        CHECK_IS(enable(port, object->s, (uintptr_t)object, FILTER_OUT, i % 2 ? LEVEL_ON : EDGE_ON),
                 ERROR_SUCCESS);
        CHECK_IS(unregister(port, object->s), ERROR_SUCCESS);
    }
    return NULL;
}

static void what_a_key_points_to_lives_until_removal(void)
{
    pthread_t owners[OWNERS];
    int total = OWNERS * (is_slow() ? OBJECTS / 10 : OBJECTS), ended = 0, i;
    for (i = 0; i < OWNERS; i++) {
        CHECK_IS(pthread_create(&owners[i], NULL, makes_objects, NULL), 0);
    }
    while (ended < total) {
        OVERLAPPED_ENTRY entries[16];
        ULONG count, place;
        CHECK_IS(GetQueuedCompletionStatusEx(port, entries, 16, &count, SOON, FALSE), TRUE);
        for (place = 0; place < count; place++) {
            OBJECT *object = (OBJECT *)entries[place].lpCompletionKey;
            CHECK_IS(object->guard, 0x600DF00Du);
            if (SocketNotificationRetrieveEvents(&entries[place]) & SOCK_NOTIFY_EVENT_REMOVE) {
                CHECK_IS(closesocket(object->s), 0);
                object->guard = 0;
                free(object);
                __atomic_sub_fetch(&still_there, 1, __ATOMIC_SEQ_CST);
                ended++;
            }
        }
    }
    for (i = 0; i < OWNERS; i++) {
        CHECK_IS(pthread_join(owners[i], NULL), 0);
    }
    CHECK_IS(still_there, 0);
    CHECK(is_silent(port));
}

/* Row 14, of a socket that is open still. */
static void what_is_being_removed_can_only_be_removed(void)
{
    SOCKET s = udp_socket();
    CHECK_IS(enable(port, s, 1, FILTER_IN, LEVEL_ON), ERROR_SUCCESS);
    CHECK_IS(unregister(port, s), ERROR_SUCCESS);
    CHECK_IS(unregister(port, s), ERROR_SUCCESS);
    CHECK_IS(disable(port, s), ERROR_INVALID_PARAMETER);
    CHECK_IS(enable(port, s, 2, FILTER_IN, LEVEL_ON), ERROR_INVALID_PARAMETER);
    CHECK_NEXT(port, 1, SOCK_NOTIFY_EVENT_REMOVE);
    CHECK(is_silent(port));
    CHECK_IS(unregister(port, s), ERROR_NOT_FOUND);
    CHECK_IS(disable(port, s), ERROR_NOT_FOUND);
    CHECK_IS(closesocket(s), 0);
}

int main(void)
{
    int way;
    start();
    port = new_port(0);
    for (way = 0; way < WAYS; way++) {
#if HAS_CHECKED_MODE
        CHECK_IS(cp_set_checked(way == BY_CLOSE_CHECKED), 0);
#endif
        a_number_that_comes_back_has_its_new_key(way, LEVEL_ON);
        a_number_that_comes_back_has_its_new_key(way, LEVEL_ONCE);
        a_number_that_comes_back_has_its_new_key(way, EDGE_ON);
        a_closed_socket_is_not_registered(way);
        a_number_may_come_back_on_another_port(way);
        a_removed_number_may_come_back_on_another_port(way);
        a_removal_that_was_asked_for_is_told_after_closing(way);
        CHECK(is_silent(port));
        what_is_being_removed_can_only_be_removed();
    }
#if HAS_CHECKED_MODE
    CHECK_IS(cp_set_checked(0), 1);
#endif
    an_accepted_socket_is_a_new_one();
    forgetting_nothing_is_harmless();
    what_a_key_points_to_lives_until_removal();
    CHECK_IS(CloseHandle(port), TRUE);
    return finish();
}
