//! The distinct ropes of a program, on the device: frequencies and axes of each.

use crate::driver::{Address, DeviceBuffer, Driver};
use crate::error::CudaError;
use crate::number::Number;
use gannet_ops::{Node, Op, Program, RopeTable};
use std::sync::Arc;

/// Each distinct table and where its lists lie.
pub(super) struct Ropes {
    tables: Option<Vec<(Arc<RopeTable>, [DeviceBuffer; 2])>>,
}

impl Ropes {
    /// As if every list lay nowhere, to learn which kernels a program needs.
    pub(super) fn nowhere() -> Self {
        Self { tables: None }
    }

    pub(super) fn new(program: &Program, driver: &Arc<dyn Driver>) -> Result<Self, CudaError> {
        let mut tables: Vec<(Arc<RopeTable>, [DeviceBuffer; 2])> = Vec::new();
        for node in program.nodes.iter().flat_map(Node::parts) {
            if let Op::Rope(rope) = &node.op
                && place(&tables, &rope.table).is_none()
            {
                let frequencies = Number::F32.encode(&rope.table.inverse_frequencies);
                let axes: Vec<u8> =
                    rope.table.axes.iter().flat_map(|axis| u32::from(*axis).to_le_bytes()).collect();
                let lists = [frequencies, axes].map(|list| upload(driver, &list));
                let [frequencies, axes] = lists;
                tables.push((Arc::clone(&rope.table), [frequencies?, axes?]));
            }
        }
        Ok(Self { tables: Some(tables) })
    }

    /// The frequencies and the axes of a table of the program.
    pub(super) fn of(&self, table: &Arc<RopeTable>) -> [Address; 2] {
        let Some(tables) = &self.tables else { return [Address::NONE; 2] };
        let place = place(tables, table).expect("every rope of the program was collected");
        let [frequencies, axes] = &tables[place].1;
        [frequencies.address(), axes.address()]
    }
}

/// Layers usually share a table.
fn place(tables: &[(Arc<RopeTable>, [DeviceBuffer; 2])], table: &Arc<RopeTable>) -> Option<usize> {
    tables.iter().position(|(known, _)| Arc::ptr_eq(known, table) || known == table)
}

fn upload(driver: &Arc<dyn Driver>, bytes: &[u8]) -> Result<DeviceBuffer, CudaError> {
    let buffer = DeviceBuffer::new(driver, bytes.len())?;
    driver.upload(buffer.address(), bytes)?;
    Ok(buffer)
}
