// SPDX-License-Identifier: GPL-2.0
/*
 * Checking a request: every field, the descriptors, the plan.
 *
 * Nothing is sent before all of a request was checked. A plan is copied once and checked in the
 * copy, so that the caller cannot change it under way; headers of the caller's are read as they
 * are sent and need no check. Cost: eight bytes of plan for each packet, charged to the caller's
 * memory control group and freed with the call or the session.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/in.h>
#include <linux/kernel.h>
#include <linux/limits.h>
#include <linux/mm.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <net/sock.h>
#include <net/tcp_states.h>

#include "engine.h"

/* Layout is the same for 32-bit callers: no padding, natural boundaries. */
static_assert(sizeof(struct pagewire_rtp_packet) == 8);
static_assert(sizeof(struct pagewire_rtp_send) == 88);
static_assert(offsetof(struct pagewire_rtp_send, sent_packets) == 72);

/* The bytes before each payload. */
unsigned int pwr_request_header_bytes(const struct pagewire_rtp_send *send)
{
	switch (send->header) {
	case PAGEWIRE_RTP_HEADER_CALLER:
		return send->header_bytes;
	case PAGEWIRE_RTP_HEADER_ENGINE:
		return PWR_RTP_HEADER_BYTES;
	default:
		return 0;
	}
}

static int pwr_check_header(const struct pagewire_rtp_send *send)
{
	if (send->header != PAGEWIRE_RTP_HEADER_CALLER)
		return send->headers || send->header_bytes ? -EINVAL : 0;
	if (!send->headers || !send->header_bytes ||
	    send->header_bytes > PAGEWIRE_RTP_HEADER_BYTES_MAX)
		return -EINVAL;
	return 0;
}

/* Number and size of the packets. */
static int pwr_check_packets(const struct pagewire_rtp_send *send)
{
	bool listed = send->plan || send->headers;
	u64 packets;

	if (send->packets > PAGEWIRE_RTP_PACKETS_MAX || listed != !!send->packets)
		return -EINVAL;
	if (send->plan)
		return send->payload_bytes ? -EINVAL : 0;

	if (!send->payload_bytes || send->payload_bytes > PAGEWIRE_RTP_PAYLOAD_BYTES_MAX ||
	    send->payload_bytes + pwr_request_header_bytes(send) > PWR_DATAGRAM_BYTES_MAX)
		return -EINVAL;
	packets = DIV_ROUND_UP_ULL(send->length, send->payload_bytes);
	return send->headers && packets != send->packets ? -EINVAL : 0;
}

/**
 * pwr_request_check() - check all fields that need no look at what they refer to
 * @send: request
 *
 * Return: 0, -EINVAL, or -EOPNOTSUPP for batches on a kernel without them.
 */
int pwr_request_check(const struct pagewire_rtp_send *send)
{
	bool memory = send->source == PAGEWIRE_RTP_FROM_MEMORY;
	u64 end_max = memory ? LONG_MAX : LLONG_MAX;
	int error;

	if (send->reserved[0] | send->reserved[1] | send->reserved[2])
		return -EINVAL;
	if (send->source > PAGEWIRE_RTP_FROM_MEMORY ||
	    send->header > PAGEWIRE_RTP_HEADER_ENGINE ||
	    send->segments > PAGEWIRE_RTP_SEGMENTS_MAX ||
	    send->payload_type > 127)
		return -EINVAL;
	if (memory && send->file_fd != -1)
		return -EINVAL;
	if (!send->length || send->offset > end_max || send->length > end_max - send->offset)
		return -EINVAL;
	error = pwr_check_header(send);
	if (!error)
		error = pwr_check_packets(send);
	if (!error && send->segments > 1 && !pwr_handover_segments)
		error = -EOPNOTSUPP;
	return error;
}

/**
 * pwr_request_file() - the file of a request, with a reference
 * @send: request from a file
 *
 * Return: the file, or -EBADF when it is none or not open for reading, -EINVAL when it is not a
 * regular file or cannot be spliced from.
 */
struct file *pwr_request_file(const struct pagewire_rtp_send *send)
{
	struct file *file = fget(send->file_fd);
	int error = 0;

	if (!file)
		return ERR_PTR(-EBADF);
	if (!(file->f_mode & FMODE_READ))
		error = -EBADF;
	else if (!S_ISREG(file_inode(file)->i_mode) || !file->f_op->splice_read ||
		 !(file->f_mode & FMODE_LSEEK))
		error = -EINVAL;
	if (error) {
		fput(file);
		return ERR_PTR(error);
	}
	return file;
}

/**
 * pwr_request_socket() - the socket of a request, with a reference
 * @send: request
 *
 * Return: the socket, or -EBADF, -ENOTSOCK, -EPROTOTYPE when it is not UDP over IPv4 or IPv6,
 * -EDESTADDRREQ when it is not connected.
 */
struct socket *pwr_request_socket(const struct pagewire_rtp_send *send)
{
	struct socket *socket;
	struct sock *sk;
	int error = 0;

	socket = sockfd_lookup(send->socket_fd, &error);
	if (!socket)
		return ERR_PTR(error);
	sk = socket->sk;
	if (socket->type != SOCK_DGRAM || sk->sk_protocol != IPPROTO_UDP ||
	    (sk->sk_family != AF_INET && sk->sk_family != AF_INET6))
		error = -EPROTOTYPE;
	else if (READ_ONCE(sk->sk_state) != TCP_ESTABLISHED)
		error = -EDESTADDRREQ;
	if (error) {
		sockfd_put(socket);
		return ERR_PTR(error);
	}
	return socket;
}

/**
 * pwr_plan_check() - check a plan
 * @plan: of @packets entries
 * @packets: at least 1
 * @length: what payloads must add up to
 * @header_bytes: before each payload
 *
 * Return: 0 or -EINVAL.
 */
int pwr_plan_check(const struct pagewire_rtp_packet *plan, u32 packets, u64 length,
		   unsigned int header_bytes)
{
	u64 sum = 0;	/* 65536 packets of 64 KiB at most */
	u32 index;

	for (index = 0; index < packets; index++) {
		if (!plan[index].payload_bytes ||
		    plan[index].payload_bytes > PAGEWIRE_RTP_PAYLOAD_BYTES_MAX ||
		    plan[index].payload_bytes + header_bytes > PWR_DATAGRAM_BYTES_MAX ||
		    plan[index].flags & ~PAGEWIRE_RTP_MARKER)
			return -EINVAL;
		sum += plan[index].payload_bytes;
	}
	return sum == length ? 0 : -EINVAL;
}

/**
 * pwr_request_plan() - a checked copy of the plan of a request
 * @send: request that pwr_request_check() passed
 *
 * Return: the copy, for kvfree(); NULL without a plan; or -EFAULT, -ENOMEM, -EINVAL.
 */
struct pagewire_rtp_packet *pwr_request_plan(const struct pagewire_rtp_send *send)
{
	struct pagewire_rtp_packet *plan;
	int error = 0;

	if (!send->plan)
		return NULL;
	plan = kvmalloc_array(send->packets, sizeof(*plan), GFP_KERNEL_ACCOUNT);
	if (!plan)
		return ERR_PTR(-ENOMEM);
	if (copy_from_user(plan, u64_to_user_ptr(send->plan), send->packets * sizeof(*plan)))
		error = -EFAULT;
	else
		error = pwr_plan_check(plan, send->packets, send->length,
				       pwr_request_header_bytes(send));
	if (error) {
		kvfree(plan);
		return ERR_PTR(error);
	}
	return plan;
}
