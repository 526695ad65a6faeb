/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared declarations of the check of pagewire_rtp: results as TAP, and the world that is checked
 * in: the device, a file of known bytes, UDP sockets on the loopback.
 */
#ifndef PAGEWIRE_RTP_CHECK_H
#define PAGEWIRE_RTP_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <linux/pagewire_rtp.h>

#define NAME_BYTES	64
#define PACKETS		4000	/* of a byte compare */
#define RTP_BYTES	12
#define PARAMETERS	"/sys/module/pagewire_rtp/parameters/"

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

/* tap.c: every claim is a line `ok N - what` or `not ok N - what` */
#define ok(passed, ...)		tap_result(passed, __FILE__, __LINE__, __VA_ARGS__)
bool tap_result(bool passed, const char *file, int line, const char *what, ...)
	__attribute__((format(printf, 4, 5)));
void tap_skip(const char *why, const char *what, ...) __attribute__((format(printf, 2, 3)));
void tap_note(const char *text, ...) __attribute__((format(printf, 1, 2)));
int tap_end(void);
void fatal(const char *what) __attribute__((noreturn));

/* world.c */
struct world {
	int device;
	int file;		/* open for reading */
	char path[NAME_BYTES];	/* of it */
	uint8_t *bytes;		/* what is in it */
	size_t file_bytes;
	uint8_t *map;		/* it, mapped */
	int receiver;		/* connected pair on the loopback */
	int sender;
	int call_packets;	/* of 1500 bytes that the receiver's buffer certainly holds */
	bool root;
};

extern struct world world;
void world_open(void);
void world_pair(int family, int *receiver, int *sender);
void world_drain(int receiver);
int world_file(const char *name, size_t bytes);
uint64_t now_ns(void);
void sleep_ns(uint64_t ns);
struct pagewire_rtp_send request_file(uint64_t offset, uint64_t length, uint16_t payload_bytes);
int send_errno(struct pagewire_rtp_send *send);
long number_in(const char *path, const char *key);
bool write_file(const char *path, const char *text);

/* guest.c: when this is the first process of a machine */
void guest_begin(void);
void guest_end(int failed) __attribute__((noreturn));

/* kmsg.c */
void kmsg_begin(void);
void kmsg_end(const char *when, bool faults_wanted);

/* the checks, one file each */
void check_bytes(void);
void check_fields(void);
void check_faults(void);
void check_released(void);
void check_sessions(void);
void check_users(void);
void check_hung(void);
void check_injection(void);
void check_fuzz(uint64_t seed, long rounds, unsigned int seconds);
void check_leaks_begin(void);
void check_leaks_end(void);
void check_paced(unsigned int seconds);
void check_unload(void);

#endif
