/* ioapiset.h: where the reference declares completion ports. */
#ifndef CP_IOAPISET_H
#define CP_IOAPISET_H
#include <windows.h>
#endif
