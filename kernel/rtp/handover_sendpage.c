// SPDX-License-Identifier: GPL-2.0
/*
 * Handing a packet to the socket, kernels before 6.5: kernel_sendpage(), a piece at a time.
 *
 * All pieces but the last carry MSG_MORE, which corks the socket until the packet is whole; a
 * piece that is refused drops what is corked. No UDP_SEGMENT here: sendpage has no control
 * messages. Between the pieces the socket is open to others: a program that sends on it from
 * another thread meanwhile has its bytes in the engine's packet; newer kernels do not have that.
 * Over IPv6 these kernels copy. Security modules are not asked, as with sendfile(2) there.
 *
 * Cost for each packet: the socket lock two or three times, and checksums in software.
 *
 * Sources: udp_sendpage() and ip_append_page() of 6.1.
 */
#include <linux/kernel.h>
#include <linux/net.h>
#include <linux/socket.h>

#include "engine.h"

const bool pwr_handover_segments;

/**
 * pwr_handover() - hand the packet to the socket
 * @run: with one whole packet and none begun
 *
 * Return: 0, or the socket's error.
 */
int pwr_handover(struct pwr_run *run)
{
	unsigned int index;

	for (index = 0; index < run->pieces; index++) {
		const struct bio_vec *piece = &run->piece[index];
		int flags = run->message_flags;
		int sent;

		if (index + 1 < run->pieces)
			flags |= MSG_MORE | MSG_SENDPAGE_NOTLAST;
		sent = kernel_sendpage(run->socket, piece->bv_page, piece->bv_offset,
				       piece->bv_len, flags);
		if (sent < 0)
			return sent;
	}
	return 0;
}
