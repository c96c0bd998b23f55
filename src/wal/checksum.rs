//! CRC-32 (the reflected polynomial of IEEE 802.3), eight bytes a step.

const POLYNOMIAL: u32 = 0xedb8_8320;
const BYTES_PER_STEP: usize = 8;

const TABLES: [[u32; 256]; BYTES_PER_STEP] = tables();

const fn tables() -> [[u32; 256]; BYTES_PER_STEP] {
    let mut tables = [[0; 256]; BYTES_PER_STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < BYTES_PER_STEP {
        byte = 0;
        while byte < 256 {
            let shorter = tables[table - 1][byte];
            tables[table][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// The checksum of `bytes`.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    let (steps, rest) = bytes.as_chunks::<BYTES_PER_STEP>();
    for step in steps {
        let [a, b, c, d, e, f, g, h] = *step;
        let low = (crc ^ u32::from_le_bytes([a, b, c, d])).to_le_bytes();
        let [a, b, c, d] = low;
        crc = TABLES[7][usize::from(a)]
            ^ TABLES[6][usize::from(b)]
            ^ TABLES[5][usize::from(c)]
            ^ TABLES[4][usize::from(d)]
            ^ TABLES[3][usize::from(e)]
            ^ TABLES[2][usize::from(f)]
            ^ TABLES[1][usize::from(g)]
            ^ TABLES[0][usize::from(h)];
    }
    for &byte in rest {
        crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ byte)];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_check_value() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let long: Vec<u8> = (0..=255).collect();
        assert_eq!(crc32(&long), 0x2905_8c73);
    }
}
