#ifndef HOLD_MODES_H
#define HOLD_MODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODES_SIZE 512 /* of their text, at most */

struct modes { /* all zero in a fresh terminal */
	uint32_t changed; /* private modes that are not as in a fresh terminal */
	uint16_t alternate, mouse;
	bool insert, newline, keypad;
	char charset, region[24], cursor[8];
	size_t pending_size; /* of a sequence that is not complete */
	char pending[64];
};

void modes_follow(struct modes *modes, const uint8_t *data, size_t size);
size_t modes_text(const struct modes *modes, char text[MODES_SIZE]); /* what sets them in a fresh terminal, not terminated */

#endif
