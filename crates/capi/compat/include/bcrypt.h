/* bcrypt.h: where the reference declares random bytes. Nothing else of it is here. */
#ifndef CP_BCRYPT_H
#define CP_BCRYPT_H
#include <windows.h>
#endif
