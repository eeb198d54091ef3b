"""How a run lies on disk, and who shares it: alone in its folder, or in pieces with other ranks."""

from outgrid.sharing.base import Sharing
from outgrid.sharing.claims import Beginning, sharing_of, stored
from outgrid.sharing.told import Told, record_of

__all__ = ["Beginning", "Sharing", "Told", "record_of", "sharing_of", "stored"]
