/* mstcpip.h: keep-alive of one connection: SIO_KEEPALIVE_VALS. */
#ifndef CP_MSTCPIP_H
#define CP_MSTCPIP_H

#include <winsock2.h>

#endif
