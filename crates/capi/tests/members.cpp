// Members, parameters and other functions may have the names of socket calls: nothing is renamed.
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include "check.h"

namespace {

struct Channel {
    int recv(int count) { return count + 1; }
    int send(const std::string &text) const { return static_cast<int>(text.size()); }
    int accept() { return 3; }
    int connect(int a, int b, int c, int d) { return a + b + c + d; }
    int bind() const { return 5; }
    int socket = 6;
    int listen = 7;
    int shutdown(int how) { return how; }
    int recvfrom() { return 8; }
    int sendto() { return 9; }
    int getsockopt() { return 10; }
    int setsockopt() { return 11; }
    int getsockname() { return 12; }
    int getpeername() { return 13; }
    int closesocket() { return 14; }
    int ioctlsocket() { return 15; }
};

namespace recv_of_another_space {
int recv(const char *text) { return static_cast<int>(std::strlen(text)); }
} // namespace recv_of_another_space

template <typename T> struct Table {
    std::function<int(T)> send = [](T value) { return static_cast<int>(value); };
    std::function<int()> accept;
};

// A program for Windows takes LONG for long, and unsigned numbers are taken as well.
template <typename T> void counts_in()
{
    volatile T count = 0;
    CHECK_IS(InterlockedDecrement(&count), static_cast<T>(-1));
    CHECK_IS(count, static_cast<T>(-1));
    CHECK_IS(InterlockedIncrement(&count), 0);
    CHECK_IS(InterlockedExchangeAdd(&count, 5), 0);
    CHECK_IS(InterlockedExchange(&count, 7), 5);
    CHECK_IS(InterlockedCompareExchange(&count, 9, 8), 7);
    CHECK_IS(InterlockedCompareExchangeAcquire(&count, 9, 7), 7);
    CHECK_IS(InterlockedOr(&count, 2), 9);
    CHECK_IS(InterlockedAnd(&count, 3), 11);
    CHECK_IS(InterlockedDecrementRelease(&count), 2);
}

int with_parameters(int recv, int send, int accept) { return recv * 100 + send * 10 + accept; }

} // namespace

int main()
{
    start();
    Channel channel;
    CHECK_IS(channel.recv(1), 2);
    CHECK_IS(channel.send("four"), 4);
    CHECK_IS(channel.accept(), 3);
    CHECK_IS(channel.connect(1, 1, 1, 1), 4);
    CHECK_IS(channel.bind(), 5);
    CHECK_IS(channel.socket, 6);
    CHECK_IS(channel.listen, 7);
    CHECK_IS(channel.shutdown(SD_BOTH), 2);
    CHECK_IS(channel.recvfrom(), 8);
    CHECK_IS(channel.sendto(), 9);
    CHECK_IS(channel.getsockopt(), 10);
    CHECK_IS(channel.setsockopt(), 11);
    CHECK_IS(channel.getsockname(), 12);
    CHECK_IS(channel.getpeername(), 13);
    CHECK_IS(channel.closesocket(), 14);
    CHECK_IS(channel.ioctlsocket(), 15);
    CHECK_IS(recv_of_another_space::recv("text"), 4);
    CHECK_IS(with_parameters(1, 2, 3), 123);

    counts_in<LONG>();
    counts_in<long>();
#ifndef __MINGW32__ // whose headers have only some of them for unsigned numbers
    counts_in<ULONG>();
    counts_in<unsigned long>();
#endif

    Table<long> table;
    table.accept = [] { return 1; };
    CHECK_IS(table.send(16), 16);
    CHECK_IS(table.accept(), 1);

    // The address of a call is a function's, and the call through it is the mapped one.
    auto receive = [](SOCKET s, char *bytes, int count) { return static_cast<int>(recv(s, bytes, count, 0)); };
    SOCKET near, far;
    char byte = 0;
    tcp_pair(&near, &far);
    set_nonblocking(near);
    WSASetLastError(0);
    CHECK_IS(receive(near, &byte, 1), SOCKET_ERROR);
    CHECK_IS(WSAGetLastError(), WSAEWOULDBLOCK);
    send_all(far, "z", 1);
    until(near, POLLIN);
    CHECK_IS(receive(near, &byte, 1), 1);
    CHECK_IS(byte, 'z');
    CHECK_IS(closesocket(near), 0);
    CHECK_IS(closesocket(far), 0);

    std::map<std::string, int> sends{{"send", 1}};
    CHECK_IS(sends["send"], 1);
    return finish();
}
