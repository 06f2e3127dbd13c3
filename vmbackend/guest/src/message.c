/* The messages that give a machine an identity: they lie on the requests port before its processors go on.
 *
 *     "MVMLOAD\n", then four numbers of 32 bits, little-endian: version, kind, bytes of the records, bytes of the
 *     configuration; then both, as in config.c
 *
 * The answer is one line that names each item in its order: `WORD GENERATION ITEM... NOW`, with the clock in nanoseconds; or
 * `failed ITEM REASON`. The host lets packets pass only after the former; a machine that fails, or does not answer in time, is
 * destroyed.
 */
#define _GNU_SOURCE
#include "message.h"

#include "guest.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAGIC "MVMLOAD\n"
#define MAGIC_SIZE 8
#define VERSION 1
#define RECORDS_MAX 4096
#define SECOND 1000000000LL
#define REST_MS 5000 /* the host writes a message at once: one whose rest is not there by then was cut off */
#define ANSWER_SIZE 512

struct head {
	char magic[MAGIC_SIZE];
	uint32_t version, kind, records, configuration;
};

static char *data; /* begins with the head; NULL: none */
static size_t used;
static long long until;

static const struct head *head(void)
{
	return (const struct head *)data;
}

static bool head_is_valid(void)
{
	return !memcmp(head()->magic, MAGIC, MAGIC_SIZE) && head()->version == VERSION && head()->records &&
	       head()->records <= RECORDS_MAX && head()->configuration && head()->configuration <= CONFIG_MAX;
}

static const char *records(void)
{
	return data + sizeof(struct head);
}

/* Bytes of the head, then of the whole. */
static size_t wanted(void)
{
	size_t size = sizeof(struct head);
	return used < size || !head_is_valid() ? size : size + head()->records + head()->configuration;
}

bool message_begins(const char *bytes, size_t size)
{
	return size >= MAGIC_SIZE && !memcmp(bytes, MAGIC, MAGIC_SIZE);
}

size_t message_take(const char *bytes, size_t size)
{
	size_t taken = 0, part;
	if (!data) {
		data = malloc(sizeof(struct head) + RECORDS_MAX + CONFIG_MAX);
		used = 0;
		until = now_ms() + REST_MS;
	}
	while (data && (part = wanted() - used < size - taken ? wanted() - used : size - taken)) {
		memcpy(data + used, bytes + taken, part);
		used += part;
		taken += part;
	}
	return taken;
}

enum message_state message_state(void)
{
	if (!data)
		return MESSAGE_NONE;
	if (used < wanted())
		return MESSAGE_PART;
	errno = EPROTO;
	return head_is_valid() && !records()[head()->records - 1] ? MESSAGE_WHOLE : MESSAGE_INVALID;
}

enum message_kind message_kind(void)
{
	return (enum message_kind)head()->kind;
}

const char *message_get(const char *key)
{
	size_t length = strlen(key);
	for (size_t at = 0; at < head()->records; at += strlen(records() + at) + 1)
		if (!strncmp(records() + at, key, length) && records()[at + length] == '=')
			return records() + at + length + 1;
	errno = EPROTO;
	return NULL;
}

void message_drop_late(void)
{
	if (message_state() == MESSAGE_PART && now_ms() > until)
		message_end();
}

void message_end(void)
{
	if (data)
		explicit_bzero(data, used);
	free(data);
	data = NULL;
	used = 0;
}

bool message_take_items(int fd, const char *word, const struct item *items, size_t count)
{
	char names[ANSWER_SIZE] = "";
	struct timespec now;
	for (size_t i = 0; i < count; i++) {
		if (!items[i].take()) {
			dprintf(fd, "failed %s %s\n", items[i].name, strerror(errno));
			log_boot("cannot take another identity: %s: %s", items[i].name, strerror(errno));
			return false;
		}
		strncat(names, " ", sizeof names - strlen(names) - 1);
		strncat(names, items[i].name, sizeof names - strlen(names) - 1);
	}
	clock_gettime(CLOCK_REALTIME, &now);
	dprintf(fd, "%s %s%s %lld\n", word, message_get("generation"), names, now.tv_sec * SECOND + now.tv_nsec);
	return true;
}

bool take_entropy(void)
{
	const char *hex = message_get("entropy");
	return hex && reseed_random(hex);
}

bool take_clock(void)
{
	const char *text = message_get("clock");
	long long nanoseconds = text ? atoll(text) : 0;
	struct timespec time = {.tv_sec = nanoseconds / SECOND, .tv_nsec = nanoseconds % SECOND};
	return text && !clock_settime(CLOCK_REALTIME, &time);
}

/* Programs that start at this moment read the old one or the new one. */
bool take_configuration(void)
{
	const char *configuration = records() + head()->records;
	if (!write_file(CONFIG_FILE ".new", configuration, head()->configuration, 0600) ||
	    rename(CONFIG_FILE ".new", CONFIG_FILE))
		return false;
	errno = EPROTO;
	return config_load(CONFIG_FILE);
}

bool take_mac(void)
{
	const char *text = message_get("mac");
	return text && set_mac(text);
}

bool take_generation(void)
{
	const char *generation = message_get("generation");
	return generation && write_generation(generation);
}

bool take_uuid(void)
{
	const char *uuid = message_get("uuid");
	return uuid && write_file(UUID_FILE, uuid, strlen(uuid), 0400);
}
