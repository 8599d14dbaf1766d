//! The stores from their users' view: one contract, real disks, real etcd.

mod blob_support;
mod blobs;
mod blobs_collect;
mod blobs_crash;
mod blobs_disk_full;
mod blobs_etcd_full;
mod blobs_memory;
mod blobs_race;
mod compare_and_swap;
mod embedded;
mod embedded_crash;
mod embedded_damage;
mod embedded_full;
mod embedded_history;
mod embedded_leases;
mod embedded_lifecycle;
mod etcd_contract;
mod etcd_failover;
mod etcd_lost_answers;
mod etcd_majority;
mod etcd_member;
mod etcd_tls;
mod etcd_v2;
mod follow;
mod killed;
mod memory_contract;
