/* The modes that a terminal's output has set before the oldest byte that is kept: a program says them once. */
#include "hold_modes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ESC 0x1b
#define BEL 0x07
#define SOFT_RESET (1 << 0 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 7)

/* A bit of `changed` each; 7 and 25 are set in a fresh terminal, the others are not. */
static const int private_modes[] = {1, 5, 6, 7, 12, 25, 45, 66, 1004, 1005, 1006, 1007, 1015, 1016, 2004, 2026, 2031};
#define PRIVATE_COUNT (sizeof private_modes / sizeof private_modes[0])

static bool is_initial(int mode)
{
	return mode == 7 || mode == 25;
}

static void set_private(struct modes *modes, int mode, bool on)
{
	if (mode == 47 || mode == 1047 || mode == 1049)
		modes->alternate = on ? (uint16_t)mode : 0;
	else if (mode == 9 || (mode >= 1000 && mode <= 1003))
		modes->mouse = on ? (uint16_t)mode : 0;
	for (size_t i = 0; i < PRIVATE_COUNT; i++)
		if (private_modes[i] == mode)
			modes->changed = on == is_initial(mode) ? modes->changed & ~(1u << i) : modes->changed | 1u << i;
}

static void set_modes(struct modes *modes, bool private, const char *numbers, bool on)
{
	for (;;) {
		char *end;
		long mode = strtol(numbers, &end, 10);
		if (end == numbers || end - numbers > 5)
			mode = -1;
		if (private)
			set_private(modes, (int)mode, on);
		else if (mode == 4)
			modes->insert = on;
		else if (mode == 20)
			modes->newline = on;
		if (!*end)
			return;
		numbers = end + 1;
	}
}

static void reset_softly(struct modes *modes)
{
	modes->changed &= ~(uint32_t)(SOFT_RESET);
	modes->insert = modes->keypad = false;
	modes->charset = modes->region[0] = 0;
}

/* ESC [ PREFIX NUMBERS MIDDLE FINAL, of which the pending bytes have all but the last. */
static void apply(struct modes *modes, char final)
{
	char *text = modes->pending + 2, prefix = 0;
	modes->pending[modes->pending_size] = 0;
	if (strchr("<=>?", *text) && *text)
		prefix = *text++;
	size_t numbers = strspn(text, "0123456789;:");
	char middle = text[numbers];
	bool single = middle && !text[numbers + 1];
	text[numbers] = 0;
	if ((final == 'h' || final == 'l') && !middle && (!prefix || prefix == '?'))
		set_modes(modes, prefix, text, final == 'h');
	else if (final == 'p' && middle == '!' && single)
		reset_softly(modes);
	else if (final == 'q' && middle == ' ' && single)
		snprintf(modes->cursor, sizeof modes->cursor, "%s", text);
	else if (final == 'r' && !middle && !prefix)
		snprintf(modes->region, sizeof modes->region, "%s", text);
}

/* The second byte of a sequence. */
static void begin(struct modes *modes, uint8_t byte)
{
	if (byte == 'c')
		memset(modes, 0, sizeof *modes);
	else if (byte == '=' || byte == '>')
		modes->keypad = byte == '=';
	else if (byte && strchr("[(]PX^_", byte)) {
		modes->pending[modes->pending_size++] = (char)byte;
		return;
	}
	modes->pending_size = 0;
}

static void go_on(struct modes *modes, uint8_t byte)
{
	char kind = modes->pending[1];
	bool string = kind != '[' && kind != '(';
	if (string ? byte != BEL : kind == '[' && byte >= 0x20 && byte < 0x40) {
		if (string)
			return;
		if (modes->pending_size < sizeof modes->pending - 1) {
			modes->pending[modes->pending_size++] = (char)byte;
			return;
		}
	} else if (kind == '[' && byte >= 0x40 && byte < 0x7f) {
		apply(modes, (char)byte);
	} else if (kind == '(' && ((byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z'))) {
		modes->charset = byte == 'B' ? 0 : (char)byte;
	}
	modes->pending_size = 0;
}

void modes_follow(struct modes *modes, const uint8_t *data, size_t size)
{
	for (const uint8_t *end = data + size; data < end; data++) {
		if (!modes->pending_size && !(data = memchr(data, ESC, (size_t)(end - data))))
			return;
		if (*data == ESC) {
			modes->pending[0] = ESC;
			modes->pending_size = 1;
		} else if (modes->pending_size == 1) {
			begin(modes, *data);
		} else {
			go_on(modes, *data);
		}
	}
}

size_t modes_text(const struct modes *modes, char text[MODES_SIZE])
{
	size_t size = 0;
#define ADD(...) (size += (size_t)snprintf(text + size, MODES_SIZE - size, __VA_ARGS__))
	if (modes->alternate)
		ADD("\x1b[?%dh", modes->alternate);
	for (size_t i = 0; i < PRIVATE_COUNT; i++)
		if (modes->changed >> i & 1)
			ADD("\x1b[?%d%c", private_modes[i], is_initial(private_modes[i]) ? 'l' : 'h');
	if (modes->mouse)
		ADD("\x1b[?%dh", modes->mouse);
	ADD("%s%s%s", modes->insert ? "\x1b[4h" : "", modes->newline ? "\x1b[20h" : "", modes->keypad ? "\x1b=" : "");
	if (modes->charset)
		ADD("\x1b(%c", modes->charset);
	if (modes->region[0])
		ADD("\x1b[%sr", modes->region);
	if (modes->cursor[0])
		ADD("\x1b[%s q", modes->cursor);
	memcpy(text + size, modes->pending, modes->pending_size);
	return size + modes->pending_size;
}
