/* A small web server to run in a machine: static, one thread for each connection, kept open.
 *
 *   web PORT...
 *   GET /         a page that opens a WebSocket to where it came from
 *   GET /ok       a short text
 *   GET /head     the request's head as it came
 *   POST /echo    the body again (Content-Length only)
 *   GET /ws       a WebSocket that echoes
 *   GET /events   an event stream: numbers from 1, ten a second
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MAX 16384
#define FRAME_MAX 65536
#define BODY_MAX (64u << 20)

static const char PAGE[] =
    "<!doctype html><title>inside</title><h1 id=\"said\">hello from inside</h1><script>\n"
    "window.echoes = 0;\n"
    "const socket = new WebSocket(location.origin.replace('http', 'ws') + '/ws');\n"
    "socket.onopen = () => socket.send('0');\n"
    "socket.onmessage = (event) => { window.echoes = Number(event.data) + 1;\n"
    "  setTimeout(() => socket.send(String(window.echoes)), 100); };\n"
    "</script>";

struct reader {
	int fd;
	size_t start, end;
	unsigned char data[HEAD_MAX];
};

static int send_all(int fd, const void *data, size_t size)
{
	const char *at = data;
	while (size) {
		ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
		if (sent <= 0)
			return -1;
		at += sent;
		size -= sent;
	}
	return 0;
}

static int read_exactly(struct reader *in, void *to, size_t size)
{
	unsigned char *at = to;
	while (size) {
		if (in->start < in->end) {
			size_t part = in->end - in->start < size ? in->end - in->start : size;
			memcpy(at, in->data + in->start, part);
			in->start += part;
			at += part;
			size -= part;
			continue;
		}
		ssize_t got = recv(in->fd, at, size, 0);
		if (got <= 0)
			return -1;
		at += got;
		size -= got;
	}
	return 0;
}

/* The request's head with its empty line into `head`, as a string; -1 at the end of the connection. */
static int read_head(struct reader *in, char *head)
{
	for (;;) {
		unsigned char *found = memmem(in->data + in->start, in->end - in->start, "\r\n\r\n", 4);
		if (found) {
			size_t size = found + 4 - (in->data + in->start);
			memcpy(head, in->data + in->start, size);
			head[size] = 0;
			in->start += size;
			return 0;
		}
		memmove(in->data, in->data + in->start, in->end - in->start);
		in->end -= in->start;
		in->start = 0;
		if (in->end == sizeof in->data)
			return -1;
		ssize_t got = recv(in->fd, in->data + in->end, sizeof in->data - in->end, 0);
		if (got <= 0)
			return -1;
		in->end += got;
	}
}

static const char *header(const char *head, const char *name)
{
	size_t size = strlen(name);
	for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
		if (!strncasecmp(line + 2, name, size) && line[2 + size] == ':')
			return line + 3 + size + strspn(line + 3 + size, " ");
	return NULL;
}

static int answer(int fd, const char *type, const void *body, size_t size)
{
	char head[256];
	int length = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n",
			      type, size);
	if (size <= 1024) {
		char all[sizeof head + 1024];
		memcpy(all, head, length);
		memcpy(all + length, body, size);
		return send_all(fd, all, length + size);
	}
	return send_all(fd, head, length) || send_all(fd, body, size) ? -1 : 0;
}

static int echo_body(struct reader *in, const char *head)
{
	const char *given = header(head, "Content-Length");
	size_t size = given ? strtoul(given, NULL, 10) : 0;
	char *body = size <= BODY_MAX ? malloc(size + 1) : NULL;
	if (!body)
		return -1;
	const char *expects = header(head, "Expect");
	if (expects && send_all(in->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25))
		size = 0;
	int failed = read_exactly(in, body, size) || answer(in->fd, "application/octet-stream", body, size);
	free(body);
	return failed ? -1 : 0;
}

static uint32_t turn(uint32_t word, int by)
{
	return word << by | word >> (32 - by);
}

static void sha1(const unsigned char *text, size_t size, unsigned char out[20])
{
	uint32_t h[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
	unsigned char block[128] = {0};
	size_t total = size + 9 > 64 ? 128 : 64;
	memcpy(block, text, size);
	block[size] = 0x80;
	for (int i = 0; i < 8; i++)
		block[total - 1 - i] = (uint64_t)size * 8 >> (8 * i);
	for (size_t at = 0; at < total; at += 64) {
		uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
		for (int i = 0; i < 80; i++)
			w[i] = i < 16 ? (uint32_t)block[at + 4 * i] << 24 | block[at + 4 * i + 1] << 16 |
					    block[at + 4 * i + 2] << 8 | block[at + 4 * i + 3]
				      : turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
		for (int i = 0; i < 80; i++) {
			uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 || i >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
			uint32_t k = i < 20 ? 0x5A827999 : i < 40 ? 0x6ED9EBA1 : i < 60 ? 0x8F1BBCDC : 0xCA62C1D6;
			uint32_t next = turn(a, 5) + f + e + k + w[i];
			e = d, d = c, c = turn(b, 30), b = a, a = next;
		}
		h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
	}
	for (int i = 0; i < 20; i++)
		out[i] = h[i / 4] >> (24 - 8 * (i % 4));
}

static void accept_key(const char *key, char out[29])
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned char text[61], hash[21] = {0};
	memcpy(text, key, 24);
	memcpy(text + 24, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36);
	sha1(text, 60, hash);
	for (int i = 0; i < 7; i++) {
		uint32_t part = hash[3 * i] << 16 | hash[3 * i + 1] << 8 | hash[3 * i + 2];
		for (int j = 0; j < 4; j++)
			out[4 * i + j] = digits[part >> (18 - 6 * j) & 63];
	}
	out[27] = '=';
	out[28] = 0;
}

/* Frames of up to FRAME_MAX bytes, unfragmented. */
static int echo_frames(struct reader *in)
{
	static __thread unsigned char frame[FRAME_MAX + 4];
	unsigned char head[4], mask[4];
	while (!read_exactly(in, head, 2)) {
		size_t size = head[1] & 127, length = 2;
		if (size == 126) {
			if (read_exactly(in, head + 2, 2))
				return -1;
			size = head[2] << 8 | head[3];
			length = 4;
		}
		if (size == 127 || !(head[1] & 128) || read_exactly(in, mask, 4) || read_exactly(in, frame + length, size))
			return -1;
		for (size_t i = 0; i < size; i++)
			frame[length + i] ^= mask[i % 4];
		memcpy(frame, head, length);
		frame[1] &= 127;
		if ((head[0] & 15) == 9)
			frame[0] = 0x8A;
		if (send_all(in->fd, frame, length + size) || (head[0] & 15) == 8)
			return -1;
	}
	return -1;
}

static int upgrade(struct reader *in, const char *head)
{
	const char *key = header(head, "Sec-WebSocket-Key");
	char accepted[29], text[256];
	if (!key || strlen(key) < 24)
		return -1;
	accept_key(key, accepted);
	int length = snprintf(text, sizeof text,
			      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
			      "Sec-WebSocket-Accept: %s\r\n\r\n",
			      accepted);
	return send_all(in->fd, text, length) ? -1 : echo_frames(in);
}

static int send_events(struct reader *in)
{
	static const char begin[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
	char event[64];
	int failed = send_all(in->fd, begin, sizeof begin - 1);
	for (int number = 1; !failed; number++) {
		failed = send_all(in->fd, event, snprintf(event, sizeof event, "data: %d\n\n", number));
		usleep(100000);
	}
	return -1;
}

static int handle(struct reader *in, const char *head)
{
	if (!strncmp(head, "GET /events ", 12))
		return send_events(in);
	if (!strncmp(head, "POST /echo ", 11))
		return echo_body(in, head);
	if (!strncmp(head, "GET /ws ", 8))
		return upgrade(in, head);
	if (!strncmp(head, "GET /head", 9))
		return answer(in->fd, "text/plain", head, strlen(head));
	if (!strncmp(head, "GET / ", 6))
		return answer(in->fd, "text/html", PAGE, sizeof PAGE - 1);
	return answer(in->fd, "text/plain", "ok\n", 3);
}

static void *serve(void *given)
{
	struct reader *in = given;
	char *head = malloc(HEAD_MAX + 1);
	while (head && !read_head(in, head) && !handle(in, head))
		;
	free(head);
	close(in->fd);
	free(in);
	return NULL;
}

static void *listen_on(void *given)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(given))};
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 512)) {
		perror("web");
		exit(1);
	}
	for (;;) {
		struct reader *in = calloc(1, sizeof *in);
		pthread_t thread;
		if (!in || (in->fd = accept(fd, NULL, NULL)) < 0) {
			free(in);
			continue;
		}
		setsockopt(in->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (pthread_create(&thread, NULL, serve, in)) {
			close(in->fd);
			free(in);
		} else {
			pthread_detach(thread);
		}
	}
}

int main(int count, char **words)
{
	pthread_t thread;
	signal(SIGPIPE, SIG_IGN);
	for (int i = 2; i < count; i++)
		pthread_create(&thread, NULL, listen_on, words[i]);
	if (count > 1)
		listen_on(words[1]);
	return 2;
}
