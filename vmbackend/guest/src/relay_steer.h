#ifndef RELAY_STEER_H
#define RELAY_STEER_H

#include <netinet/in.h>
#include <stdbool.h>

bool steer_open(in_addr_t own, int listener); /* false with errno */
void steer_port(unsigned port, bool steered); /* new connections from outside to OWN:PORT become those of the listener */

#endif
