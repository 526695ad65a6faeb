# SPDX-License-Identifier: MIT OR Apache-2.0
"""Google's Tink as the other side of the form gcm: tink.py open|seal FOLDER TARGET.

The key is bytes 0 to 31, the segments have 32768 bytes. Without arguments: is Tink here?
"""

import os
import sys

# The folder of this file is searched first, and has a file of the same name.
sys.path = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]

import tink
from tink import cleartext_keyset_handle, streaming_aead
from tink.proto import aes_gcm_hkdf_streaming_pb2, common_pb2, tink_pb2


def primitive(key, segment_bytes):
    streaming_aead.register()
    kind = aes_gcm_hkdf_streaming_pb2.AesGcmHkdfStreamingKey(version=0, key_value=key)
    kind.params.ciphertext_segment_size = segment_bytes
    kind.params.derived_key_size = 32
    kind.params.hkdf_hash_type = common_pb2.SHA256
    keyset = tink_pb2.Keyset(primary_key_id=1)
    one = keyset.key.add()
    one.key_id = 1
    one.status = tink_pb2.ENABLED
    one.output_prefix_type = tink_pb2.RAW
    one.key_data.type_url = "type.googleapis.com/google.crypto.tink.AesGcmHkdfStreamingKey"
    one.key_data.value = kind.SerializeToString()
    one.key_data.key_material_type = tink_pb2.KeyData.SYMMETRIC
    reader = tink.BinaryKeysetReader(keyset.SerializeToString())
    return cleartext_keyset_handle.read(reader).primitive(streaming_aead.StreamingAead)


def main():
    tool = primitive(bytes(range(32)), 32768)
    if len(sys.argv) == 1:
        return
    verb, folder, target = sys.argv[1:]
    for name in os.listdir(folder):
        source = open(os.path.join(folder, name), "rb")
        result = open(os.path.join(target, name), "wb")
        if verb == "seal":
            with tool.new_encrypting_stream(result, b"") as stream:
                stream.write(source.read())
        else:
            with tool.new_decrypting_stream(source, b"") as stream, result:
                result.write(stream.read())


main()
