#pragma once
// What is fuzzed: readers of text that may come from anywhere. Each takes any bytes, and throws
// std::logic_error when what it accepts is not what it should be. An Error of ours is a good answer; every
// other exception is a finding.
#include <string_view>

namespace holdfast::fuzz {

/// A manifest.json.
void try_manifest(std::string_view bytes);
/// A writer's vote.
void try_vote(std::string_view bytes);
/// A safetensors file: length, header, buffer.
void try_safetensors(std::string_view bytes);
/// A config.json, or the index of a sharded model.
void try_hf_config(std::string_view bytes);
/// An adapter_config.json.
void try_adapter_config(std::string_view bytes);
/// One message of the control protocol, without its seal.
void try_message(std::string_view bytes);
/// Lines of a handshake, or behind one: the first byte says which.
void try_session(std::string_view bytes);
/// Bytes on an agent's socket.
void try_channel(std::string_view bytes);
/// A seal of snapshot buffers, or the name of a folder of them.
void try_seal(std::string_view bytes);
/// What a mover says to another one behind the handshake: a request, or an answer.
void try_mover_request(std::string_view bytes);
/// Bytes on a mover's socket.
void try_bulk(std::string_view bytes);
/// A chat template; behind a NUL, where there is one, the conversation that it renders.
void try_jinja(std::string_view bytes);
/// A tokenizer.json, or what is changed (RFC 7396) in the smallest one; behind a NUL, where there is one, the
/// text that it cuts.
void try_tokenizer(std::string_view bytes);
/// A SentencePiece model.
void try_sentencepiece(std::string_view bytes);
/// A run directory, as `status` and `report` read it: two files of the event log, metrics.jsonl, result.json
/// and plan.json, with NULs between them.
void try_run(std::string_view bytes);
/// The file of a node in a ledger.
void try_ledger(std::string_view bytes);
/// A folder of checkpoints, as the verbs look at it: manifest.json and commit.json of its only checkpoint,
/// and the record of durable steps beside it, with NULs between them.
void try_checkpoints(std::string_view bytes);
/// A rank's flight record, or two copies of it, one after the other.
void try_flight(std::string_view bytes);
/// A list of hosts.
void try_hostlist(std::string_view bytes);
/// A tuning.json.
void try_tuning(std::string_view bytes);
/// A cluster file.
void try_cluster(std::string_view bytes);
/// The card of a token file; IDENTITY in it is that of the file.
void try_card(std::string_view bytes);
/// A job file, or a run's config.toml.
void try_job(std::string_view bytes);

}  // namespace holdfast::fuzz
