#ifndef HOLD_INPUT_H
#define HOLD_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream;
struct terminal;

bool input_add(struct terminal *terminal, struct stream *stream, uint32_t request, const uint8_t *data, size_t size);
void input_write(struct terminal *terminal);
void input_drop(struct terminal *terminal);
void input_forget(struct terminal *terminal, const struct stream *stream);

#endif
