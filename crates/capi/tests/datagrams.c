/* WSARecvMsg and WSASendMsg: datagrams with addresses and control data, with and without an OVERLAPPED, over IPv4 and
 * then over IPv6. */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <mswsock.h>

#include "check.h"
#include "overlapped.h"

#define KEY 17u

typedef union Address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} Address;

/* A message and everything it points to. */
typedef struct Letter {
    WSAMSG message;
    Address address;
    WSABUF buffers[2];
    char bytes[2][8];
    union {
        WSACMSGHDR head;
        char bytes[128];
    } control;
} Letter;

static HANDLE port;
static LPFN_WSARECVMSG receive_message;
static LPFN_WSASENDMSG send_message;
static int family = AF_INET;

static void look_them_up(void)
{
    GUID receives = WSAID_WSARECVMSG, sends = WSAID_WSASENDMSG;
    SOCKET s = udp_socket();
    DWORD bytes;
    CHECK_IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &receives, sizeof receives, &receive_message,
                      sizeof receive_message, &bytes, NULL, NULL),
             0);
    CHECK_IS(WSAIoctl(s, SIO_GET_EXTENSION_FUNCTION_POINTER, &sends, sizeof sends, &send_message,
                      sizeof send_message, &bytes, NULL, NULL),
             0);
    CHECK(receive_message != NULL && send_message != NULL);
    CHECK(GetProcAddress(LoadLibraryA("ws2_32.dll"), "WSASendMsg") != NULL);
    CHECK_IS(closesocket(s), 0);
}

static int size_of_address(void)
{
    return family == AF_INET ? (int)sizeof(struct sockaddr_in) : (int)sizeof(struct sockaddr_in6);
}

/* This machine's address in the family. */
static Address own_address(void)
{
    static const unsigned char OWN[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    Address address;
    memset(&address, 0, sizeof address);
    address.any.sa_family = (sa_family_t)family;
    if (family == AF_INET)
        address.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        memcpy(&address.six.sin6_addr, OWN, sizeof OWN);
    return address;
}

static SOCKET bound(Address *address)
{
    SOCKET s = socket(family, SOCK_DGRAM, IPPROTO_UDP);
    int size = (int)sizeof *address;
    CHECK(s != INVALID_SOCKET);
    *address = own_address();
    CHECK_IS(bind(s, &address->any, size_of_address()), 0);
    CHECK_IS(getsockname(s, &address->any, &size), 0);
    return s;
}

/* Makes room: two buffers of `room` bytes each, an address, and `control` bytes of control data. */
static void make_room(Letter *letter, ULONG room, ULONG control)
{
    int place;
    memset(letter, 0, sizeof *letter);
    for (place = 0; place < 2; place++)
        letter->buffers[place] = buffer_of(letter->bytes[place], room);
    letter->message.name = &letter->address.any;
    letter->message.namelen = (INT)sizeof letter->address;
    letter->message.lpBuffers = letter->buffers;
    letter->message.dwBufferCount = 2;
    letter->message.Control = buffer_of(letter->control.bytes, control);
}

/* Writes a message to this address, with this text in both buffers and no control data. */
static void write_letter(Letter *letter, const Address *to, const char *text)
{
    make_room(letter, (ULONG)strlen(text), 0);
    memcpy(letter->bytes[0], text, strlen(text));
    memcpy(letter->bytes[1], text, strlen(text));
    letter->address = *to;
    letter->message.namelen = size_of_address();
}

/* Sets the source address of a message. */
static void put_source(Letter *letter, const Address *source)
{
    WSACMSGHDR *head;
    letter->message.Control = buffer_of(letter->control.bytes, sizeof letter->control);
    head = WSA_CMSG_FIRSTHDR(&letter->message);
    CHECK(head == &letter->control.head);
    if (family == AF_INET) {
        IN_PKTINFO info;
        memset(&info, 0, sizeof info);
        info.ipi_addr = source->four.sin_addr;
        head->cmsg_level = IPPROTO_IP;
        head->cmsg_type = IP_PKTINFO;
        head->cmsg_len = WSA_CMSG_LEN(sizeof info);
        memcpy(WSA_CMSG_DATA(head), &info, sizeof info);
        letter->message.Control.len = WSA_CMSG_SPACE(sizeof info);
    } else {
        IN6_PKTINFO info;
        memset(&info, 0, sizeof info);
        info.ipi6_addr = source->six.sin6_addr;
        head->cmsg_level = IPPROTO_IPV6;
        head->cmsg_type = IPV6_PKTINFO;
        head->cmsg_len = WSA_CMSG_LEN(sizeof info);
        memcpy(WSA_CMSG_DATA(head), &info, sizeof info);
        letter->message.Control.len = WSA_CMSG_SPACE(sizeof info);
    }
}

static int wants_source(SOCKET s, DWORD on)
{
    return family == AF_INET ? setsockopt(s, IPPROTO_IP, IP_PKTINFO, (char *)&on, sizeof on)
                             : setsockopt(s, IPPROTO_IPV6, IPV6_PKTINFO, (char *)&on, sizeof on);
}

/* Checks that the control data names this machine's address as the destination. */
static void check_control(Letter *letter)
{
    WSACMSGHDR *head = WSA_CMSG_FIRSTHDR(&letter->message);
    Address own = own_address();
    CHECK(head != NULL);
    if (family == AF_INET) {
        IN_PKTINFO info;
        CHECK(head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_PKTINFO);
        CHECK_IS(head->cmsg_len, WSA_CMSG_LEN(sizeof info));
        memcpy(&info, WSA_CMSG_DATA(head), sizeof info);
        CHECK_IS(info.ipi_addr.s_addr, own.four.sin_addr.s_addr);
        CHECK(info.ipi_ifindex > 0);
    } else {
        IN6_PKTINFO info;
        CHECK(head->cmsg_level == IPPROTO_IPV6 && head->cmsg_type == IPV6_PKTINFO);
        memcpy(&info, WSA_CMSG_DATA(head), sizeof info);
        CHECK(memcmp(&info.ipi6_addr, &own.six.sin6_addr, sizeof info.ipi6_addr) == 0);
        CHECK(info.ipi6_ifindex > 0);
    }
    CHECK(WSA_CMSG_NXTHDR(&letter->message, head) == NULL);
}

static void check_letter(Letter *letter, const Address *from, const char *text)
{
    size_t size = strlen(text);
    CHECK_IS(letter->message.dwFlags, 0);
    CHECK_IS(letter->message.namelen, size_of_address());
    CHECK_IS(letter->address.four.sin_port, from->four.sin_port);
    CHECK(memcmp(letter->bytes[0], text, size) == 0 && memcmp(letter->bytes[1], text, size) == 0);
    check_control(letter);
}

#if HAS_SOCKET_CALLS
/* As those of WSARecv: the system has room for it, and the socket's own shutdown ends it. */
static void a_receive_in_flight_is_room_and_may_be_shut(void)
{
    Address address;
    SOCKET s = bound(&address);
    Letter in;
    OVERLAPPED receiving = fresh(NULL);
    DWORD count = UNTOUCHED, flags = 0;
    int before = 0, room = 0, size = sizeof room;
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_RCVBUF, (char *)&before, &size), 0);
    associate(s, port, KEY);
    make_room(&in, 4, sizeof in.control);
    CHECK_PENDING(receive_message(s, &in.message, NULL, &receiving, NULL));
    CHECK_IS(getsockopt(s, SOL_SOCKET, SO_RCVBUF, (char *)&room, &size), 0);
    CHECK(room >= before);
    {
        FILE *limit = fopen("/proc/sys/net/core/rmem_max", "r");
        int most = 0;
        if (limit) {
            CHECK_IS(fscanf(limit, "%d", &most), 1);
            fclose(limit);
        }
        CHECK(most * 2 <= before || room > before);
    }
    CHECK_IS(shutdown(s, SD_RECEIVE), 0);
    CHECK_ENDED(port, KEY, &receiving, 0);
    CHECK(WSAGetOverlappedResult(s, &receiving, &count, FALSE, &flags));
    CHECK_IS(count, 0);
    closesocket(s);
}
#endif

/* In three ways: blocking calls, operations that end within their calls, and an operation that has to wait. */
static void letters_come_with_all_that_is_beside(void)
{
    int way;
    for (way = 0; way < 3; way++) {
        Address address;
        SOCKET s = bound(&address);
        Letter in, out;
        OVERLAPPED receiving = fresh(NULL), sending = fresh(NULL);
        DWORD count = UNTOUCHED, flags = UNTOUCHED;
        CHECK_IS(wants_source(s, 1), 0);
        associate(s, port, KEY);
        write_letter(&out, &address, "text");
        put_source(&out, &address);
        make_room(&in, 4, sizeof in.control);
        if (way == 2)
            CHECK_PENDING(receive_message(s, &in.message, &count, &receiving, NULL));
        if (way == 1) {
            CHECK_IS(send_message(s, &out.message, 0, NULL, &sending, NULL), 0);
            CHECK_ENDED(port, KEY, &sending, 8);
        } else {
            /* It makes no packet, which could come before that of the receive or after it. */
            CHECK_IS(WSASendMsg(s, &out.message, 0, &count, NULL, NULL), 0);
            CHECK_IS(count, 8);
        }
        if (way == 0) {
            CHECK_IS(receive_message(s, &in.message, &count, NULL, NULL), 0);
            CHECK_IS(count, 8);
        } else {
            if (way == 1) {
                CHECK_IS(receive_message(s, &in.message, &count, &receiving, NULL), 0);
                CHECK_IS(count, 8);
            }
            CHECK_ENDED(port, KEY, &receiving, 8);
            CHECK(WSAGetOverlappedResult(s, &receiving, &count, FALSE, &flags));
            CHECK_IS(flags, 0);
        }
        check_letter(&in, &address, "text");
        CHECK_IS(closesocket(s), 0);
    }
}

/* Too little room for the data, for the control data, or for both. */
static void what_is_cut_fails_and_says_so(void)
{
    int way, is_overlapped;
    for (way = 1; way < 4; way++)
        for (is_overlapped = 0; is_overlapped < 2; is_overlapped++) {
            Address address;
            SOCKET s = bound(&address);
            Letter in, out;
            OVERLAPPED overlapped = fresh(NULL);
            DWORD count = UNTOUCHED, flags = UNTOUCHED;
            DWORD wanted = (DWORD)((way & 1 ? MSG_TRUNC : 0) | (way & 2 ? MSG_CTRUNC : 0));
            CHECK_IS(wants_source(s, 1), 0);
            associate(s, port, KEY);
            write_letter(&out, &address, "text");
            CHECK_IS(WSASendMsg(s, &out.message, 0, &count, NULL, NULL), 0);
            make_room(&in, way & 1 ? 3 : 4, way & 2 ? 1 : sizeof in.control);
            if (is_overlapped) {
                CHECK_PENDING(receive_message(s, &in.message, NULL, &overlapped, NULL));
                CHECK_FAILED(port, KEY, &overlapped, way & 1 ? 6 : 8, ERROR_MORE_DATA);
                CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, &flags), WSAEMSGSIZE);
                CHECK_IS(flags, wanted);
            } else {
                CHECK_SOCKET_ERROR(receive_message(s, &in.message, &count, NULL, NULL), WSAEMSGSIZE);
            }
            CHECK_IS(count, way & 1 ? 6 : 8);
            CHECK_IS(in.message.dwFlags, wanted);
            CHECK_IS(in.address.four.sin_port, address.four.sin_port);
            if (!(way & 2))
                check_control(&in);
            else
                CHECK(WSA_CMSG_FIRSTHDR(&in.message) == NULL);
            /* The datagram is gone. Without room for control data or an address, the program wants none. */
            CHECK_IS(WSASendMsg(s, &out.message, 0, &count, NULL, NULL), 0);
            make_room(&in, 4, 0);
            in.message.Control.buf = NULL;
            in.message.name = NULL;
            in.message.dwFlags = wanted; /* left over from the previous call */
            CHECK_IS(receive_message(s, &in.message, &count, NULL, NULL), 0);
            CHECK(count == 8 && in.message.dwFlags == 0 && in.message.Control.len == 0);
            CHECK_IS(closesocket(s), 0);
        }
}

static void a_letter_may_be_looked_at_or_be_empty(void)
{
    Address address;
    SOCKET s = bound(&address);
    Letter in, out;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED, on = 0;
    int size = (int)sizeof on;
    CHECK_IS(wants_source(s, 1), 0);
    CHECK_IS(family == AF_INET ? getsockopt(s, IPPROTO_IP, IP_PKTINFO, (char *)&on, &size)
                               : getsockopt(s, IPPROTO_IPV6, IPV6_PKTINFO, (char *)&on, &size),
             0);
    CHECK_IS(on, 1);
    if (family == AF_INET6) {
        CHECK_IS(setsockopt(s, IPPROTO_IPV6, IPV6_HOPLIMIT, (char *)&on, sizeof on), 0);
        on = 0;
        CHECK_IS(getsockopt(s, IPPROTO_IPV6, IPV6_HOPLIMIT, (char *)&on, &size), 0);
        CHECK_IS(on, 1);
        on = 0;
        CHECK_IS(setsockopt(s, IPPROTO_IPV6, IPV6_HOPLIMIT, (char *)&on, sizeof on), 0);
    }
    write_letter(&out, &address, "text");
    CHECK_IS(WSASendMsg(s, &out.message, 0, &count, NULL, NULL), 0);
    make_room(&in, 4, sizeof in.control);
    in.message.dwFlags = MSG_PEEK;
    CHECK_IS(receive_message(s, &in.message, &count, NULL, NULL), 0);
    check_letter(&in, &address, "text");
    make_room(&in, 4, sizeof in.control);
    in.message.dwFlags = MSG_PEEK;
    CHECK_IS(receive_message(s, &in.message, &count, &overlapped, NULL), 0);
    check_letter(&in, &address, "text");
    make_room(&in, 4, sizeof in.control);
    CHECK_IS(receive_message(s, &in.message, &count, NULL, NULL), 0);
    set_nonblocking(s);
    CHECK_SOCKET_ERROR(receive_message(s, &in.message, &count, NULL, NULL), WSAEWOULDBLOCK);
    if (getenv("TEST_IS_EMULATED") == NULL) { /* an emulator drops messages without bytes */
        write_letter(&out, &address, "");
        CHECK_IS(WSASendMsg(s, &out.message, 0, &count, NULL, NULL), 0);
        CHECK_IS(count, 0);
        make_room(&in, 4, sizeof in.control);
        CHECK_IS(receive_message(s, &in.message, &count, NULL, NULL), 0);
        CHECK_IS(count, 0);
        check_letter(&in, &address, "");
    }
    CHECK_IS(closesocket(s), 0);
}

/* The sender chooses the source address of a message. */
static void a_letter_comes_from_the_address_that_it_says(void)
{
    Address address, any, source;
    SOCKET s = bound(&address), sender;
    Letter in, out;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED;
    int is_overlapped;
    memset(&any, 0, sizeof any);
    any.any.sa_family = (sa_family_t)family;
    source = own_address();
    if (family == AF_INET)
        source.four.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    for (is_overlapped = 0; is_overlapped < 2; is_overlapped++) {
        sender = socket(family, SOCK_DGRAM, IPPROTO_UDP);
        CHECK_IS(bind(sender, &any.any, size_of_address()), 0);
        write_letter(&out, &address, "text");
        put_source(&out, &source);
        if (is_overlapped) {
            CHECK_IS(WSASendMsg(sender, &out.message, 0, &count, &overlapped, NULL), 0);
            until_ended(&overlapped);
        } else {
            CHECK_IS(WSASendMsg(sender, &out.message, 0, &count, NULL, NULL), 0);
        }
        make_room(&in, 4, 0);
        CHECK_IS(receive_message(s, &in.message, &count, NULL, NULL), 0);
        if (family == AF_INET)
            CHECK_IS(in.address.four.sin_addr.s_addr, source.four.sin_addr.s_addr);
        else
            CHECK(memcmp(&in.address.six.sin6_addr, &source.six.sin6_addr, 16) == 0);
        CHECK_IS(closesocket(sender), 0);
    }
    CHECK_IS(closesocket(s), 0);
}

static void it_is_cancelled_as_any_receive(void)
{
    int way;
    for (way = 0; way < 2; way++) {
        Address address;
        SOCKET s = bound(&address);
        Letter in;
        OVERLAPPED overlapped = fresh(NULL);
        associate(s, port, KEY);
        make_room(&in, 4, sizeof in.control);
        CHECK_PENDING(receive_message(s, &in.message, NULL, &overlapped, NULL));
        CHECK_SOCKET_ERROR(receive_message(s, &in.message, NULL, &overlapped, NULL), WSAEINVAL);
        if (way == 0)
            CHECK(CancelIoEx((HANDLE)s, &overlapped));
        else
            CHECK_IS(closesocket(s), 0);
        CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_OPERATION_ABORTED);
        CHECK(in.message.namelen == (INT)sizeof in.address && in.message.Control.len == sizeof in.control);
        if (way == 0)
            CHECK_IS(closesocket(s), 0);
    }
}

static void bad_letters_are_refused(void)
{
    Address address;
    SOCKET s = bound(&address), stream = socket(family, SOCK_STREAM, IPPROTO_TCP);
    Letter in, out;
    OVERLAPPED overlapped = fresh(NULL), bad = fresh(port);
    LPWSAOVERLAPPED_COMPLETION_ROUTINE routine = (LPWSAOVERLAPPED_COMPLETION_ROUTINE)(void (*)(void))start;
    int is_overlapped;
    set_nonblocking(s);
    for (is_overlapped = 0; is_overlapped < 2; is_overlapped++) {
        LPOVERLAPPED how = is_overlapped ? &overlapped : NULL;
        DWORD count = UNTOUCHED;
#define RECEIVE(s) receive_message(s, &in.message, &count, how, NULL)
#define SEND(s) WSASendMsg(s, &out.message, 0, &count, how, NULL)
        make_room(&in, 4, sizeof in.control);
        write_letter(&out, &address, "text");
        CHECK_SOCKET_ERROR(receive_message(s, NULL, &count, how, NULL), WSAEFAULT);
        CHECK_SOCKET_ERROR(WSASendMsg(s, NULL, 0, &count, how, NULL), WSAEFAULT);
        CHECK_SOCKET_ERROR(RECEIVE(INVALID_SOCKET), WSAENOTSOCK);
        CHECK_SOCKET_ERROR(SEND(INVALID_SOCKET), WSAENOTSOCK);
        CHECK_SOCKET_ERROR(RECEIVE(stream), WSAEOPNOTSUPP);
        CHECK_SOCKET_ERROR(SEND(stream), WSAEOPNOTSUPP);
        in.message.dwFlags = MSG_OOB;
        CHECK_SOCKET_ERROR(RECEIVE(s), WSAEOPNOTSUPP);
        CHECK_SOCKET_ERROR(WSASendMsg(s, &out.message, MSG_OOB, &count, how, NULL), WSAEOPNOTSUPP);
        CHECK_SOCKET_ERROR(WSASendMsg(s, &out.message, MSG_PARTIAL, &count, how, NULL), WSAEOPNOTSUPP);
        in.message.dwFlags = 0;
        in.message.namelen = size_of_address() - 1;
        out.message.namelen = 8; /* for IPv6 the system also accepts 24 bytes */
        CHECK_SOCKET_ERROR(RECEIVE(s), WSAEFAULT);
        CHECK_SOCKET_ERROR(SEND(s), WSAEFAULT);
        in.message.namelen = out.message.namelen = -1;
        CHECK_SOCKET_ERROR(RECEIVE(s), WSAEFAULT);
        CHECK_SOCKET_ERROR(SEND(s), WSAEFAULT);
        in.message.namelen = out.message.namelen = size_of_address();
        in.message.Control.buf = out.message.Control.buf = NULL;
        out.message.Control.len = 1;
        CHECK_SOCKET_ERROR(RECEIVE(s), WSAEFAULT);
        CHECK_SOCKET_ERROR(SEND(s), WSAEFAULT);
        in.message.Control.buf = out.message.Control.buf = (CHAR *)8;
        in.message.Control.len = out.message.Control.len = 32;
        CHECK_SOCKET_ERROR(RECEIVE(s), WSAEFAULT);
        CHECK_SOCKET_ERROR(SEND(s), WSAEFAULT);
        in.message.Control.len = out.message.Control.len = 0;
        in.message.dwBufferCount = out.message.dwBufferCount = 0;
        CHECK_SOCKET_ERROR(RECEIVE(s), WSAEINVAL);
        CHECK_SOCKET_ERROR(SEND(s), WSAEINVAL);
        in.message.lpBuffers = out.message.lpBuffers = NULL;
        CHECK_SOCKET_ERROR(RECEIVE(s), WSAEINVAL);
        CHECK_SOCKET_ERROR(SEND(s), WSAEINVAL);
        in.message.dwBufferCount = out.message.dwBufferCount = 1;
        CHECK_SOCKET_ERROR(RECEIVE(s), WSAEFAULT);
        CHECK_SOCKET_ERROR(SEND(s), WSAEFAULT);
        /* Control data longer than its room, or shorter than its own header. */
        write_letter(&out, &address, "text");
        put_source(&out, &address);
        if (getenv("TEST_IS_EMULATED")) /* an emulator does not look at it */
            continue;
        out.control.head.cmsg_len = sizeof out.control + 1;
        CHECK_SOCKET_ERROR(SEND(s), WSAEINVAL);
        out.control.head.cmsg_len = 1;
        CHECK_SOCKET_ERROR(SEND(s), WSAEINVAL);
        CHECK(WSA_CMSG_NXTHDR(&out.message, &out.control.head) == NULL);
        out.control.head.cmsg_len = 0;
        CHECK_SOCKET_ERROR(SEND(s), WSAEINVAL);
        CHECK(WSA_CMSG_NXTHDR(&out.message, &out.control.head) == NULL);
#undef RECEIVE
#undef SEND
    }
    make_room(&in, 4, 0);
    write_letter(&out, &address, "text");
    CHECK_SOCKET_ERROR(receive_message(s, &in.message, NULL, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(WSASendMsg(s, &out.message, 0, NULL, NULL, NULL), WSAEFAULT);
    CHECK_SOCKET_ERROR(receive_message(s, &in.message, NULL, &overlapped, routine), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(WSASendMsg(s, &out.message, 0, NULL, &overlapped, routine), WSAEOPNOTSUPP);
    CHECK_SOCKET_ERROR(receive_message(s, &in.message, NULL, &bad, NULL), ERROR_INVALID_HANDLE);
    CHECK_SOCKET_ERROR(WSASendMsg(s, &out.message, 0, NULL, &bad, NULL), ERROR_INVALID_HANDLE);
    CHECK(is_silent(port));
    close_both(s, stream);
}

/* The macros find several pieces of control data in order, and none beyond the end. */
static void control_data_is_found_by_the_macros(void)
{
    Letter letter;
    WSACMSGHDR *head;
    int value, found = 0;
    CHECK_IS(sizeof(WSAMSG), 56);
    CHECK_IS(sizeof(WSACMSGHDR), 16);
    CHECK_IS(WSA_CMSG_LEN(5), 21);
    CHECK_IS(WSA_CMSG_SPACE(5), 24);
    CHECK_IS(WSA_CMSG_SPACE(0), 16);
    make_room(&letter, 1, 3 * WSA_CMSG_SPACE(sizeof value));
    for (head = WSA_CMSG_FIRSTHDR(&letter.message); head; head = WSA_CMSG_NXTHDR(&letter.message, head)) {
        head->cmsg_level = found++;
        head->cmsg_len = WSA_CMSG_LEN(sizeof value);
        memcpy(WSA_CMSG_DATA(head), &found, sizeof found);
    }
    CHECK_IS(found, 3);
    CHECK(WSA_CMSG_NXTHDR(&letter.message, NULL) == &letter.control.head);
    memcpy(&value, letter.control.bytes + 2 * WSA_CMSG_SPACE(sizeof value) + 16, sizeof value);
    CHECK_IS(value, 3);
    letter.message.Control.len = 15;
    CHECK(WSA_CMSG_FIRSTHDR(&letter.message) == NULL);
    letter.message.Control.len = 39; /* the second one's header is incomplete */
    CHECK(WSA_CMSG_NXTHDR(&letter.message, WSA_CMSG_FIRSTHDR(&letter.message)) == NULL);
    letter.message.Control.buf = NULL;
    CHECK(WSA_CMSG_FIRSTHDR(&letter.message) == NULL);
}

/* A datagram that is too long fails in the call without an OVERLAPPED, and by its packet with one. */
static void what_is_too_long_fails_by_its_packet(void)
{
    static char bytes[1 << 16];
    Address address;
    SOCKET s = bound(&address);
    WSABUF buffer = buffer_of(bytes, sizeof bytes);
    Letter out;
    OVERLAPPED overlapped = fresh(NULL);
    DWORD count = UNTOUCHED, flags = UNTOUCHED;
    CHECK(CreateIoCompletionPort((HANDLE)s, port, KEY, 0) == port);
    CHECK_SOCKET_ERROR(WSASendTo(s, &buffer, 1, &count, 0, &address.any, size_of_address(), NULL, NULL), WSAEMSGSIZE);
    CHECK_PENDING(WSASendTo(s, &buffer, 1, NULL, 0, &address.any, size_of_address(), &overlapped, NULL));
    CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_INVALID_USER_BUFFER);
    CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, &flags), WSAEMSGSIZE);
    write_letter(&out, &address, "text");
    out.message.lpBuffers = &buffer;
    out.message.dwBufferCount = 1;
    CHECK_PENDING(WSASendMsg(s, &out.message, 0, NULL, &overlapped, NULL));
    CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_INVALID_USER_BUFFER);
    CHECK_FALSE(WSAGetOverlappedResult(s, &overlapped, &count, FALSE, &flags), WSAEMSGSIZE);
    CHECK(is_silent(port));
    CHECK_IS(closesocket(s), 0);
}

/* No host has the unspecified address. */
static void nothing_is_connected_to_any_address(void)
{
    Address any, own;
    SOCKET s = socket(family, SOCK_DGRAM, IPPROTO_UDP), stream = socket(family, SOCK_STREAM, IPPROTO_TCP);
    int size = (int)sizeof own;
    memset(&any, 0, sizeof any);
    any.any.sa_family = (sa_family_t)family;
    any.four.sin_port = htons(9); /* IPv6 has it at the same place */
    CHECK_SOCKET_ERROR(connect(s, &any.any, size_of_address()), WSAEADDRNOTAVAIL);
    CHECK_SOCKET_ERROR(connect(stream, &any.any, size_of_address()), WSAEADDRNOTAVAIL);
    CHECK_SOCKET_ERROR(getpeername(s, &own.any, &size), WSAENOTCONN);
    if (family == AF_INET6) { /* carries IPv6 alone, unless the program wants both */
        DWORD alone = 7, off = 0;
        int length = (int)sizeof alone;
        CHECK_IS(getsockopt(stream, IPPROTO_IPV6, IPV6_V6ONLY, (char *)&alone, &length), 0);
        CHECK_IS(alone, 1);
        CHECK_IS(setsockopt(stream, IPPROTO_IPV6, IPV6_V6ONLY, (const char *)&off, sizeof off), 0);
        CHECK_IS(getsockopt(stream, IPPROTO_IPV6, IPV6_V6ONLY, (char *)&alone, &length), 0);
        CHECK_IS(alone, 0);
    }
    CHECK(closesocket(s) == 0 && closesocket(stream) == 0);
}

/* A socket, and its peer, which has another peer: it receives nothing from the socket until it is connected to that. */
typedef struct Unheard {
    SOCKET socket, peer;
    Address own;
} Unheard;

static Unheard unheard(void)
{
    Unheard it;
    Address peer;
    it.socket = bound(&it.own);
    it.peer = bound(&peer);
    CHECK_IS(connect(it.socket, &peer.any, size_of_address()), 0);
    CHECK_IS(connect(it.peer, &peer.any, size_of_address()), 0);
    CHECK(CreateIoCompletionPort((HANDLE)it.socket, port, KEY, 0) == port);
    return it;
}

static void close_unheard(Unheard *it)
{
    CHECK(closesocket(it->socket) == 0 && closesocket(it->peer) == 0);
}

/* The ways to send a datagram of one byte. */
enum { BY_SEND, BY_SENDTO, BY_WSASEND, BY_OVERLAPPED, BY_OVERLAPPED_PARTS, BY_MESSAGE, BY_OVERLAPPED_MESSAGE, WAYS };

static void send_one(SOCKET s, int way)
{
    WSABUF parts[2] = {buffer_of((char *)"x", 1), buffer_of(NULL, 0)};
    /* A tagged event: no packet is queued. */
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    OVERLAPPED overlapped = fresh((HANDLE)((ULONG_PTR)event | 1));
    WSAMSG message;
    DWORD sent = UNTOUCHED;
    int is_overlapped = way == BY_OVERLAPPED || way == BY_OVERLAPPED_PARTS || way == BY_OVERLAPPED_MESSAGE;
    memset(&message, 0, sizeof message);
    message.lpBuffers = parts;
    message.dwBufferCount = 1;
    switch (way) {
    case BY_SEND:
        CHECK_IS(sent = (DWORD)send(s, "x", 1, 0), 1);
        break;
    case BY_SENDTO:
        CHECK_IS(sent = (DWORD)sendto(s, "x", 1, 0, NULL, 0), 1);
        break;
    case BY_WSASEND:
        CHECK_IS(WSASend(s, parts, 1, &sent, 0, NULL, NULL), 0);
        break;
    case BY_OVERLAPPED:
        CHECK_IS(WSASend(s, parts, 1, &sent, 0, &overlapped, NULL), 0);
        break;
    case BY_OVERLAPPED_PARTS:
        CHECK_IS(WSASend(s, parts, 2, &sent, 0, &overlapped, NULL), 0);
        break;
    default:
        CHECK_IS(send_message(s, &message, 0, &sent, is_overlapped ? &overlapped : NULL, NULL), 0);
        break;
    }
    CHECK_IS(sent, 1);
    if (is_overlapped)
        CHECK_IS(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
    CHECK(CloseHandle(event));
}

/* The ways to receive. Each fails for a datagram that has reached nobody. */
static void fail_to_receive(SOCKET s, int way)
{
    char byte;
    WSABUF buffer = buffer_of(&byte, 1);
    OVERLAPPED overlapped = fresh(NULL);
    Address from;
    int size = (int)sizeof from;
    DWORD received, flags = 0;
    Letter letter;
    make_room(&letter, 1, 0);
    switch (way) {
    case BY_SEND:
        CHECK_SOCKET_ERROR(recv(s, &byte, 1, 0), WSAECONNRESET);
        break;
    case BY_SENDTO:
        CHECK_SOCKET_ERROR(recvfrom(s, &byte, 1, 0, &from.any, &size), WSAECONNRESET);
        break;
    case BY_WSASEND:
        CHECK_SOCKET_ERROR(WSARecv(s, &buffer, 1, &received, &flags, NULL, NULL), WSAECONNRESET);
        break;
    case BY_OVERLAPPED:
    case BY_OVERLAPPED_PARTS:
        CHECK_SOCKET_ERROR(receive_into(s, &byte, way == BY_OVERLAPPED, NULL, &overlapped), WSAECONNRESET);
        break;
    default:
        CHECK_SOCKET_ERROR(receive_message(s, &letter.message, &received,
                                           way == BY_OVERLAPPED_MESSAGE ? &overlapped : NULL, NULL),
                           WSAECONNRESET);
        break;
    }
}

/* The next call finds the error of a datagram that has reached nobody. */
static void send_in_vain(Unheard *it, int way)
{
    send_one(it->socket, way);
    until(it->socket, POLLERR);
}

static void a_datagram_that_reaches_nobody_fails_a_receive_and_no_send(void)
{
    int way, i;
    for (way = 0; way < WAYS; way++) {
        Unheard it = unheard();
        u_long on = 1;
        char byte;
        CHECK_IS(ioctlsocket(it.socket, FIONBIO, &on), 0);
        for (i = 0; i < 3; i++)
            send_in_vain(&it, way);
        fail_to_receive(it.socket, way);
        CHECK_SOCKET_ERROR(recv(it.socket, &byte, 1, 0), WSAEWOULDBLOCK);
        /* The next one reaches the peer. */
        send_in_vain(&it, way);
        CHECK_IS(connect(it.peer, &it.own.any, size_of_address()), 0);
        send_one(it.socket, way);
        CHECK_IS(recv(it.peer, &byte, 1, 0), 1);
        CHECK_SOCKET_ERROR(recv(it.socket, &byte, 1, 0), WSAEWOULDBLOCK);
        close_unheard(&it);
    }
}

/* Also one in flight. */
static void a_receive_in_flight_fails_for_a_datagram_that_reaches_nobody(void)
{
    int way;
    for (way = 0; way < WAYS; way++) {
        Unheard it = unheard();
        OVERLAPPED overlapped = fresh(NULL);
        char byte;
        CHECK_PENDING(receive_into(it.socket, &byte, 1, NULL, &overlapped));
        send_one(it.socket, way);
        send_one(it.socket, way);
        CHECK_FAILED(port, KEY, &overlapped, 0, ERROR_PORT_UNREACHABLE);
        close_unheard(&it);
    }
}

static void letters_of_a_family(void)
{
#if HAS_SOCKET_CALLS
    a_receive_in_flight_is_room_and_may_be_shut();
#endif
    letters_come_with_all_that_is_beside();
    what_is_cut_fails_and_says_so();
    a_letter_may_be_looked_at_or_be_empty();
    a_letter_comes_from_the_address_that_it_says();
    it_is_cancelled_as_any_receive();
    bad_letters_are_refused();
    what_is_too_long_fails_by_its_packet();
    nothing_is_connected_to_any_address();
    a_datagram_that_reaches_nobody_fails_a_receive_and_no_send();
    a_receive_in_flight_fails_for_a_datagram_that_reaches_nobody();
}

/* Whether the system supports the other family and has an address of it. */
static int has_version_six(void)
{
    SOCKET s = socket(AF_INET6, SOCK_DGRAM, IPPROTO_UDP);
    Address address;
    int has;
    family = AF_INET6;
    address = own_address();
    has = s != INVALID_SOCKET && bind(s, &address.any, size_of_address()) == 0;
    if (s != INVALID_SOCKET)
        CHECK_IS(closesocket(s), 0);
    if (!has)
        printf("SKIPPED datagrams over IPv6: this system has no address of its own\n");
    return has;
}

int main(void)
{
    start();
    port = new_port(1);
    look_them_up();
    control_data_is_found_by_the_macros();
    letters_of_a_family();
    if (has_version_six())
        letters_of_a_family();
    CHECK(CloseHandle(port));
    return finish();
}
