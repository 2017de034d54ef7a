"""The graph of all files under results/: the paths, the rule and the inputs of each kind of artifact.

KINDS is the only table of kinds, in the order in which data flows. Rules take their inputs, outputs and
parameters from KINDS. The trail of a score, `scripts.verify`, the report page and results/README.md also use
KINDS. To add a kind, add one entry.
"""

from swelab.lineage.artifact_kinds import ARTIFACTS
from swelab.lineage.graph import KINDS as KINDS
from swelab.lineage.graph import Kind as Kind
from swelab.lineage.graph import Wildcards as Wildcards
from swelab.lineage.graph import base_manifest as base_manifest
from swelab.lineage.graph import behind as behind
from swelab.lineage.graph import find as find
from swelab.lineage.graph import pattern as pattern
from swelab.lineage.graph import policy_files as policy_files
from swelab.lineage.graph import policy_sources as policy_sources
from swelab.lineage.graph import weights_paths as weights_paths

KINDS.update(ARTIFACTS)
