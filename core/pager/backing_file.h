// A file as what pages come from and go to.
#pragma once

#include <cstdint>
#include <memory>

#include "io/backing.h"
#include "io/file.h"

namespace outgrid {

// `nbytes` of a file from `data_offset` on. Transfers of whole blocks pass the page cache by where
// the file was opened so; a last part of a block goes through it.
std::shared_ptr<Backing> make_file_backing(std::shared_ptr<File> file, std::int64_t data_offset,
                                           std::int64_t nbytes);

}  // namespace outgrid
