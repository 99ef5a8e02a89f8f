/* ws2tcpip.h: what beside <winsock2.h> sources for the reference expect of addresses. */
#ifndef CP_WS2TCPIP_H
#define CP_WS2TCPIP_H

#include <winsock2.h>

typedef struct addrinfo ADDRINFOA, *PADDRINFOA;

#define InetPtonA inet_pton
#define InetNtopA inet_ntop

#endif
