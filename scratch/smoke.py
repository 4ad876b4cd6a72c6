import sys, time, json, os
sys.path.insert(0,'.'); sys.path.insert(0,'tests/schedule')
import numpy as np, cupy as cp
t0=time.time()
import meshloom as ml
print("backends", ml.backends(), "import", round(time.time()-t0,2)); 
from meshloom.backend.cuda import nvrtc
print("nvrtc", nvrtc.version())
# matrix
import test_matrix as T
bad=0; n=0
for dtype in (np.float64,np.float32):
  for kind in T.MESHES:
    exp=T.reference(kind,dtype)
    for layout in ("aos","soa","aosoa4"):
      for s in ml.strategies():
        ml.use("cuda"); c=T.Case(kind,dtype,layout)
        l=T.everything.loop(c.edges,*c.arguments,schedule=ml.Schedule(s,block=32)); c.reset()
        try: l(); T.assert_same(c.results(),exp,dtype); n+=1
        except Exception as e: bad+=1; print(s,layout,kind,dtype.__name__,"FAIL",str(e)[:300])
print("matrix ok",n,"bad",bad, round(time.time()-t0,1))
ml.use("cuda")
a=cp.zeros(1<<28,dtype=cp.float64); b=cp.zeros_like(a)
def timed(f,reps=20):
    f(); ts=[]
    for _ in range(reps):
        s,e=cp.cuda.Event(),cp.cuda.Event(); s.record(); f(); e.record(); e.synchronize(); ts.append(cp.cuda.get_elapsed_time(s,e))
    return float(np.median(ts))
copy=2*a.nbytes/timed(lambda: cp.copyto(b,a))/1e6; print("copy GB/s",round(copy)); del a,b
gm1=.4; eps=.05
@ml.kernel
def res_calc(x: ml.Read, q: ml.Read, adt: ml.Read, res: ml.Inc):
    dx, dy = x[0] - x[1]
    mu = 0.5*eps*(adt[0]+adt[1])
    def F(q):
        vol=(q[1]*dy-q[2]*dx)/q[0]
        p=gm1*(q[3]-0.5*(q[1]**2+q[2]**2)/q[0])
        return np.stack([vol*q[0], vol*q[1]+p*dy, vol*q[2]-p*dx, vol*(q[3]+p)])
    f=0.5*(F(q[0])+F(q[1]))+mu*(q[0]-q[1])
    res[0]+=f
    res[1]-=f
rows=[]
t=time.time(); base=ml.generate.naca0012(800,1200); print("mesh",round(time.time()-t,1))
for order in ("given","hilbert"):
    t=time.time(); mesh=base if order=="given" else base.reordered(order); print(order,"reorder",round(time.time()-t,1))
    for dtype in (np.float64,np.float32):
        rng=np.random.default_rng(0); N=mesh.cells.size
        for layout in ("aos","soa"):
            x=mesh.nodes.field("x",2,dtype=dtype,data=mesh.coordinates.numpy(),layout=layout)
            q=mesh.cells.field("q",4,dtype=dtype,data=rng.random((N,4))+1,layout=layout); adt=mesh.cells.field("adt",dtype=dtype,data=rng.random(N)); res=mesh.cells.field("res",4,dtype=dtype,layout=layout)
            for s in ml.strategies():
                for blk in (128,256):
                    try:
                        t=time.time()
                        l=res_calc.loop(mesh.faces,x[mesh.face_nodes],q[mesh.face_cells],adt[mesh.face_cells],res[mesh.face_cells],schedule=ml.Schedule(s,block=blk))
                        ex=l.prepare(); prep=time.time()-t
                        ms=timed(l); gb=l.counts._compulsory()/ms/1e6
                        rows.append(dict(order=order,dtype=dtype.__name__,layout=layout,strategy=s,block=blk,ms=ms,gbs=gb,share=gb/copy,res=ex.resources,prep=prep))
                        print(order,dtype.__name__,layout,s,blk,round(ms,4),"ms",round(gb/copy,3),{k:v.get('registers') for k,v in ex.resources.items()},"prep",round(prep,1),flush=True)
                    except Exception as e: print(s,layout,blk,"FAIL",repr(e)[:300],flush=True)
        if order=="hilbert" and dtype==np.float32: break
json.dump(dict(copy=copy,rows=rows),open(os.environ.get("OUT","/tmp")+"/smoke.json","w"))
print("total",time.time()-t0)
